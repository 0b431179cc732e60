// Elements from plain values. Data become text nodes and attributes, never markup, so nothing needs escaping.

/** An HTML element: `h("a", {href, class: "x", onclick: go, vars: {"--p": ".5"}}, "text", child, null)`. */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function s(tag, props = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** A panel with a title; its last child is the body. */
export function panel(id, title, ...body) {
  return h(
    "section",
    { class: "panel", "aria-labelledby": id },
    h("div", { class: "head" }, h("h2", { id }, title)),
    h("div", { class: "body" }, body),
  );
}

/** Announce a text to screen readers without showing it. */
export function say(text) {
  document.getElementById("spoken").textContent = text;
}

/** Grey lines in place of an answer that is on its way. */
export function skeleton(rows = 5) {
  return h(
    "div",
    { class: "skeleton", "aria-hidden": "true" },
    Array.from({ length: rows }, () => h("span")),
  );
}

/** An error in the server's own sentence, with a button to try again. */
export function failure(error, again) {
  const waiting = error.name === "Down";
  const passing = !(error.status < 500); // the server would refuse the same request again
  return h(
    "div",
    { class: "note bad", role: waiting ? null : "alert" },
    h("p", {}, waiting ? "Waiting for the server." : sentence(error.message)),
    !waiting && passing && again ? h("button", { type: "button", class: "quiet", onclick: again }, "Try again") : null,
  );
}

function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
