// A text field with suggestions; follows the ARIA pattern "combobox with list", so the keyboard is enough.

import { h, say } from "./dom.js";
import { folded, plural } from "./format.js";

const PAUSE = 120; // ms without typing before a search
let made = 0;

/**
 * A labelled field that suggests while the user types.
 *
 * label: text above the field. placeholder: hint inside it. noun: name of one suggestion.
 * source(text, signal): promise of [{id, name, detail}], best first. choose(id): receives the choice; for free text the id is the
 * text itself, and the server answers with a suggestion.
 */
export function combobox({ label, placeholder, noun, source, choose }) {
  const id = `combobox-${made++}`;
  const list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": `${label}: suggestions`, hidden: true });
  const input = h("input", {
    id,
    role: "combobox",
    type: "text",
    placeholder,
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    oninput: () => look(input.value, PAUSE),
    onclick: begin,
    onkeydown: key,
    onblur: left,
  });
  const element = h("div", { class: "combobox" }, h("label", { for: id }, label), input, list);
  let options = [];
  let active = -1;
  let shown = ""; // text of the present choice
  let timer = 0;
  let running = null;

  function begin() {
    if (!list.hidden) return;
    input.select(); // typing replaces the present choice
    look("", 0);
  }

  function look(text, pause) {
    clearTimeout(timer);
    running?.abort();
    timer = setTimeout(async () => {
      const mine = (running = new AbortController());
      let found;
      try {
        found = await source(text.trim(), mine.signal);
      } catch (error) {
        if (!mine.signal.aborted) open([], error.name === "Down" ? "The server does not answer." : error.message, text);
        return;
      }
      if (!mine.signal.aborted && document.activeElement === input)
        open(found, `No ${noun} has “${text.trim()}” in its name.`, text);
    }, pause);
  }

  function open(found, empty, text) {
    options = found;
    list.replaceChildren(
      ...(found.length ? found.map((one, i) => option(one, i, text.trim())) : [h("li", { class: "none" }, empty)]),
    );
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate(text.trim() && found.length ? 0 : -1);
    say(found.length ? plural(found.length, "suggestion") : empty);
  }

  function option(one, i, text) {
    return h(
      "li",
      // mousedown: the field loses its focus before a click
      {
        id: `${id}-${i}`,
        role: "option",
        "aria-selected": "false",
        onmousedown: (event) => (event.preventDefault(), take(one)),
      },
      h("span", { class: "name" }, marked(one.name, text)),
      one.detail ? h("span", { class: "detail" }, one.detail) : null,
    );
  }

  function activate(i) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = i;
    if (i < 0) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    list.children[i].setAttribute("aria-selected", "true");
    list.children[i].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", list.children[i].id);
  }

  function close() {
    clearTimeout(timer);
    running?.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    activate(-1);
    options = [];
  }

  function take(one) {
    close();
    input.value = shown = one.name;
    choose(one.id);
  }

  function key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (list.hidden) look(input.value === shown ? "" : input.value, 0);
      else if (options.length)
        activate((active + step + (active < 0 && step < 0 ? 1 : 0) + options.length) % options.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      const text = input.value.trim();
      if (active >= 0) take(options[active]);
      else if (text && text !== shown) take({ id: text, name: text });
      else close();
    } else if (event.key === "Escape") {
      if (list.hidden) input.value = "";
      else input.value = shown;
      close();
    }
  }

  function left() {
    close();
    input.value = shown; // drop text that the user did not choose
  }

  return {
    element,
    /** Show a choice made elsewhere. */
    set(name) {
      shown = name ?? "";
      if (document.activeElement !== input || list.hidden) input.value = shown;
    },
  };
}

/** Mark the typed part of a name, letter by letter: without accents the name has another length. */
function marked(name, text) {
  const letters = [...name];
  const places = letters.flatMap((letter, place) => Array(folded(letter).length).fill(place));
  const at = folded(text) ? letters.map(folded).join("").indexOf(folded(text)) : -1;
  if (at < 0) return name;
  const [from, to] = [places[at], places[at + folded(text).length - 1] + 1];
  const part = (...ends) => letters.slice(...ends).join("");
  return [part(0, from), h("mark", {}, part(from, to)), part(to)];
}
