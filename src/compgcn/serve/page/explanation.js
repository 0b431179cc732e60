// The explanation of an answer: the facts and paths behind it, as a graph and lists.

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
      say(`Explanation: ${plural(got.value.paths.length, "path")}, ${plural(got.value.facts.length, "fact")}.`);
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
      why.hidden ? ` · without ${why.hidden === 1 ? "the fact itself" : plural(why.hidden, "fact") + " between the two"}` : "",
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
  const drawn = why.paths.length ? joined(why.paths) : why.facts;
  const title = `The ${why.paths.length ? "paths" : "facts"} behind ${why.head.name} ${why.relation.name} ${why.tail.name}, as a graph`;
  const ends = why.head.id === why.tail.id ? [why.head.id] : [why.head.id, why.tail.id];
  return [
    statement,
    graph({ title, ends, facts: [asked, ...drawn] }),
    legend(),
    why.paths.length ? [h("h3", {}, "Paths"), listed(why.paths, "importance", chain), h("h3", {}, "Facts")] : [],
    listed(why.facts, "contribution", triple),
    h("p", { class: "hint" }, method(why)),
  ].flat();
}

/** Return the facts of the first paths, each once, with its place along its path; it counts as in its best path. */
function joined(paths) {
  const facts = new Map();
  for (const { steps } of paths) {
    const keys = steps.map(({ head, relation, tail }) => JSON.stringify([head.id, relation.id, tail.id]));
    if (facts.size && new Set([...facts.keys(), ...keys]).size > TOP) continue;
    steps.forEach((step, i) => {
      const known = facts.get(keys[i])?.contribution ?? -Infinity;
      const along = [i, i + 1].map((place) => place / steps.length);
      if (!step.forward) along.reverse();
      facts.set(keys[i], { ...step, along, contribution: Math.max(known, step.importance) });
    });
  }
  return [...facts.values()];
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

function listed(things, number, text) {
  const largest = Math.max(...things.map((each) => Math.abs(each[number])), 1e-12);
  return h(
    "ol",
    { class: "facts" },
    things.map((each) => row(text(each), each[number], largest)),
  );
}

function row(text, value, largest) {
  const against = value < 0;
  return h(
    "li",
    { class: against ? "minus" : "plus" },
    h("span", { class: "fact" }, text),
    h("span", { class: "bar", "aria-hidden": "true", vars: { "--share": Math.abs(value) / largest } }),
    h(
      "span",
      { class: "value" },
      signed(value),
      h("span", { class: "unseen" }, against ? " opposes it" : " supports it"),
    ),
  );
}

const triple = ({ head, relation, tail }) => [entity(head), " ", label(relation.name), " ", entity(tail)];

/** Return the entities of a path with an arrow between each two, in the direction of the fact. */
function chain({ steps }) {
  const [first] = steps;
  return [
    entity(first.forward ? first.head : first.tail),
    ...steps.flatMap(({ head, relation, tail, forward }) => [
      " ",
      label(forward ? `${relation.name}\u00a0→` : `←\u00a0${relation.name}`),
      " ",
      entity(forward ? tail : head),
    ]),
  ];
}

const label = (text) => h("span", { class: "relation" }, text);
const entity = ({ id, name }) => h("a", { href: toEntity(id) }, name);

function method({ method: how, edges, facts, paths }) {
  const role = how === "exact" ? "the answer depends on" : "send it messages";
  const of = `${plural(facts.length, "fact")} of ${plural(edges, "edge")} that ${role}.`;
  const made =
    how === "exact"
      ? "A contribution is the score with the fact minus the score without it."
      : "The neighbourhood is large, so gradients estimate the contributions.";
  const mean = paths.length ? " The importance of a path is the mean slope of the score in the weights of its steps." : "";
  return `${of} ${made}${mean}`;
}
