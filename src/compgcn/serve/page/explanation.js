// The explanation of an answer: the facts behind it, as a graph and a list.

import { latest, post } from "./api.js";
import { failure, h, say, skeleton } from "./dom.js";
import { percent, plural, signed } from "./format.js";
import { graph } from "./graph.js";
import { remember } from "./names.js";
import { toEntity } from "./router.js";

const TOP = 6; // facts that fit into a small graph

/** The panel beside the answers: `show(model, {head, relation, tail}, find)` fetches an explanation, `clear()` removes it. */
export function explanation(close) {
  const body = h("div", { class: "body" });
  const title = h("h2", { id: "why", tabindex: "-1" }, "Why");
  const element = h(
    "section",
    { class: "panel why", "aria-labelledby": "why" },
    h(
      "div",
      { class: "head" },
      title,
      h("button", { type: "button", class: "quiet close", "aria-label": "Close the explanation", onclick: close }, "✕"),
    ),
    body,
  );
  const only = latest();

  async function show(model, fact, find) {
    element.classList.add("open");
    element.setAttribute("aria-busy", "true");
    if (!body.childElementCount || body.querySelector(".note")) body.replaceChildren(skeleton(6));
    const got = await only((signal) => post("api/explain", { model, ...fact, top: TOP }, signal));
    if (!got) return;
    element.removeAttribute("aria-busy");
    if (got.error) body.replaceChildren(failure(got.error, () => show(model, fact, find)));
    else {
      remember(model, got.value.head, got.value.tail);
      body.replaceChildren(...told(got.value, find));
      say(`Explanation: ${got.value.facts.length} facts.`);
    }
  }

  function clear() {
    only.cancel();
    element.classList.remove("open");
    element.removeAttribute("aria-busy");
    body.replaceChildren(h("p", { class: "hint" }, "Choose an answer to see the facts behind it."));
  }

  clear();
  return { element, show, clear };
}

function told(why, find) {
  const asked = { head: why.head, relation: why.relation, tail: why.tail, predicted: true };
  const statement = h(
    "p",
    { class: "statement" },
    entity(why.head),
    " ",
    h("span", { class: "relation" }, why.relation.name),
    " ",
    entity(why.tail),
    h(
      "span",
      { class: "numbers" },
      // the explained score is always the tail's
      `${find === "tail" ? "" : "As the tail: "}${percent(why.probability)}, score ${why.score.toFixed(2)}`,
      why.known ? ` · known (${why.known})` : " · new",
    ),
  );
  if (!why.facts.length) {
    return [
      statement,
      h(
        "p",
        { class: "hint" },
        "No fact of the graph reaches this answer: it comes from the two entities' own vectors.",
      ),
    ];
  }
  const title = `The facts behind ${why.head.name} ${why.relation.name} ${why.tail.name}, as a graph`;
  const ends = why.head.id === why.tail.id ? [why.head.id] : [why.head.id, why.tail.id];
  return [
    statement,
    graph({ title, ends, facts: [asked, ...why.facts] }),
    legend(),
    h(
      "ol",
      { class: "facts" },
      why.facts.map((fact) => row(fact, Math.max(...why.facts.map((each) => Math.abs(each.contribution)), 1e-12))),
    ),
    h("p", { class: "hint" }, method(why)),
  ];
}

function legend() {
  const key = (tone, text) => h("span", { class: `key ${tone}` }, h("i"), text);
  return h(
    "p",
    { class: "legend", "aria-hidden": "true" },
    key("predicted", "the answer"),
    key("plus", "+ supports it"),
    key("minus", "− opposes it"),
  );
}

function row(fact, largest) {
  const against = fact.contribution < 0;
  return h(
    "li",
    { class: against ? "minus" : "plus" },
    h(
      "span",
      { class: "fact" },
      entity(fact.head),
      " ",
      h("span", { class: "relation" }, fact.relation.name),
      " ",
      entity(fact.tail),
    ),
    h("span", { class: "bar", "aria-hidden": "true", vars: { "--share": Math.abs(fact.contribution) / largest } }),
    h(
      "span",
      { class: "value" },
      signed(fact.contribution),
      h("span", { class: "unseen" }, against ? " opposes it" : " supports it"),
    ),
  );
}

const entity = ({ id, name }) => h("a", { href: toEntity(id) }, name);

function method({ method: how, edges, facts }) {
  const role = how === "exact" ? "the answer depends on" : "send it messages";
  const of = `${plural(facts.length, "fact")} of ${plural(edges, "edge")} that ${role}.`;
  const made =
    how === "exact"
      ? "A contribution is the score with the fact minus the score without it."
      : "The neighbourhood is large, so gradients estimate the contributions.";
  return `${of} ${made}`;
}
