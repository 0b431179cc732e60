// One entity: the facts about it and the most similar entities.

import { get, latest } from "./api.js";
import { failure, h, panel, skeleton } from "./dom.js";
import { count, plural } from "./format.js";
import { graph } from "./graph.js";
import { nameOf, remember } from "./names.js";
import { entitySearch } from "./question.js";
import { address, toEntity } from "./router.js";

const DRAWN = 9; // facts that fit into a small graph
const LISTED = 200;
const ALIKE = 12;

/** The view "Entity". */
export function entity(context) {
  const model = () => context.model.id;
  const search = entitySearch("Entity", model);
  const title = h("h1", {}, "Entity");
  const actions = h("p", { class: "actions" });
  const around = panel("around", "Neighbourhood");
  const similar = panel("similar", "Similar entities");
  const [facts, alike] = [around.lastChild, similar.lastChild];
  const columns = h("div", { class: "columns" }, around, similar);
  const element = h(
    "div",
    { class: "view entity" },
    h("section", { class: "lead" }, h("div", {}, title, actions), search.element),
    columns,
  );
  const [onlyFacts, onlyAlike] = [latest(), latest()];
  let shown = "";

  function update(state, again) {
    const key = JSON.stringify([model(), state.entity]);
    search.set(state.entity && nameOf(model(), state.entity));
    if (key === shown && !again) return;
    shown = key;
    columns.hidden = !state.entity;
    actions.replaceChildren();
    title.textContent = state.entity ? nameOf(model(), state.entity) : "Choose an entity";
    if (state.entity) {
      neighbourhood(state.entity);
      similar.hidden = !context.model.vectors;
      if (context.model.vectors) likeness(state.entity);
    } else busiest();
  }

  async function busiest() {
    const got = await onlyFacts((signal) => get("api/entities", { model: model(), limit: 12 }, signal));
    if (!got) return;
    if (got.error) {
      actions.replaceChildren(failure(got.error, busiest));
      return;
    }
    remember(model(), got.value.entities);
    actions.replaceChildren(
      h("span", { class: "hint" }, "Search one, or choose one with many facts:"),
      h(
        "span",
        { class: "chips" },
        got.value.entities.map((one) =>
          h("a", { class: "chip", href: toEntity(one.id) }, h("b", {}, one.name), ` ${count(one.degree)}`),
        ),
      ),
    );
  }

  async function neighbourhood(id) {
    around.setAttribute("aria-busy", "true");
    if (!facts.querySelector(".graph")) facts.replaceChildren(skeleton(8));
    const got = await onlyFacts((signal) =>
      get("api/neighbourhood", { model: model(), entity: id, limit: LISTED }, signal),
    );
    if (!got) return;
    around.removeAttribute("aria-busy");
    if (got.error) {
      facts.replaceChildren(failure(got.error, () => neighbourhood(id)));
      return;
    }
    const it = got.value.entity;
    remember(
      model(),
      it,
      got.value.facts.flatMap((fact) => [fact.head, fact.tail]),
    );
    title.textContent = it.name;
    search.set(it.name);
    actions.replaceChildren(
      h("a", { class: "button", href: address({ view: "ask", model: context.chosen(), head: it.id }) }, "Ask about it"),
      context.model.vectors
        ? h(
            "a",
            { class: "button quiet", href: address({ view: "map", model: context.chosen(), entity: it.id }) },
            "Show on the map",
          )
        : "",
      h(
        "span",
        { class: "hint" },
        plural(got.value.total, "fact"),
        it.id === it.name ? null : [" · ", h("code", {}, it.id)],
      ),
    );
    facts.replaceChildren(...told(it, got.value));
  }

  async function likeness(id) {
    similar.setAttribute("aria-busy", "true");
    if (!alike.querySelector(".ranked")) alike.replaceChildren(skeleton(6));
    const got = await onlyAlike((signal) => get("api/similar", { model: model(), entity: id, top: ALIKE }, signal));
    if (!got) return;
    similar.removeAttribute("aria-busy");
    // the panel beside this one names the unknown entity
    if (got.error)
      alike.replaceChildren(
        got.error.status === 404
          ? h("p", { class: "hint" }, "Nothing to compare.")
          : failure(got.error, () => likeness(id)),
      );
    else {
      remember(model(), got.value.answers);
      alike.replaceChildren(
        h("ol", { class: "ranked" }, got.value.answers.map(alikeRow)),
        h("p", { class: "hint" }, "Cosine of the encoder's vectors."),
      );
    }
  }

  return { element, update, title: (state) => (state.entity ? nameOf(model(), state.entity) : "Entity") };
}

function alikeRow(one) {
  return h(
    "li",
    {},
    h(
      "a",
      { class: "answer", href: toEntity(one.id) },
      h("span", { class: "rank" }, one.rank),
      h("span", { class: "name" }, one.name),
      h("span", { class: "bar", "aria-hidden": "true", vars: { "--share": Math.max(0, one.similarity) } }),
      h("span", { class: "value" }, one.similarity.toFixed(3)),
    ),
  );
}

function told(it, { total, facts }) {
  if (!facts.length) return [h("p", { class: "hint" }, "The data have no fact about it.")];
  const drawn = spread(facts, DRAWN);
  const title = `${it.name} and ${plural(drawn.length, "fact")} about it, as a graph`;
  return [
    graph({ title, ends: [it.id], facts: drawn }),
    total > drawn.length ? h("p", { class: "hint" }, `The graph shows ${drawn.length} of ${plural(total, "fact")}.`) : "",
    ...grouped(it, facts).map(group),
    total > facts.length
      ? h("p", { class: "hint" }, `The list shows the first ${count(facts.length)} of ${count(total)}.`)
      : "",
  ];
}

/** Choose some facts, one of each relation in turn. */
function spread(facts, most) {
  const queues = new Map();
  for (const fact of facts) {
    if (!queues.has(fact.relation.id)) queues.set(fact.relation.id, []);
    queues.get(fact.relation.id).push(fact);
  }
  const taken = [];
  for (let i = 0; taken.length < Math.min(most, facts.length); i++) {
    for (const queue of queues.values()) if (queue[i] && taken.length < most) taken.push(queue[i]);
  }
  return taken;
}

/** Group facts by relation and side: [{relation, out, others: [{entity, split}]}]. */
function grouped(it, facts) {
  const groups = new Map();
  for (const fact of facts) {
    const out = fact.head.id === it.id;
    const key = `${out}\n${fact.relation.id}`;
    if (!groups.has(key)) groups.set(key, { relation: fact.relation, out, others: [] });
    groups.get(key).others.push({ entity: out ? fact.tail : fact.head, split: fact.split });
  }
  return [...groups.values()].sort((a, b) => b.out - a.out);
}

function group({ relation, out, others }) {
  return h(
    "section",
    { class: "group" },
    h(
      "h3",
      {},
      out ? null : "← ",
      h("span", { class: "relation" }, relation.name),
      out ? " →" : null,
      h("span", { class: "number" }, count(others.length)),
    ),
    h(
      "ul",
      { class: "chips" },
      others.map(({ entity: one, split }) =>
        h(
          "li",
          {},
          h(
            "a",
            { class: "chip", href: toEntity(one.id) },
            one.name,
            split === "train" ? null : h("span", { class: `badge ${split}` }, split),
          ),
        ),
      ),
    ),
  );
}
