// The question: a fact with one of its three parts missing.

import { get } from "./api.js";
import { combobox } from "./combobox.js";
import { h } from "./dom.js";
import { folded, plural } from "./format.js";
import { learn, nameOf, remember } from "./names.js";
import { go, here } from "./router.js";

export const PARTS = ["head", "relation", "tail"];
const TITLES = { head: "Head", relation: "Relation", tail: "Tail" };
const FOUND = { tail: "Tails", head: "Heads", relation: "The relation" };
const LISTED = 300; // relations in the list; typing finds the others

/** Suggest entities, in every search field of the page. */
const entitySource = (model) => async (text, signal) => {
  const { entities } = await get("api/entities", { model: model(), q: text, limit: 10 }, signal);
  remember(model(), entities);
  const twins = (name) => entities.filter((one) => one.name === name).length > 1; // their ids differ
  return entities.map((one) => ({
    ...one,
    detail: `${twins(one.name) ? `${one.id} · ` : ""}${plural(one.degree, "fact")}`,
  }));
};

/** A search field that opens the entity in the same view. */
export const entitySearch = (label, model) =>
  combobox({
    label,
    placeholder: "Search an entity",
    noun: "entity",
    source: entitySource(model),
    choose: (id) => go({ entity: id }),
  });

/** The three fields and the switch for the missing part; `update(state)` fills them in. */
export function question(context) {
  const model = () => context.model.id;
  const search = { placeholder: "Search an entity", noun: "entity", source: entitySource(model) };
  const choice = { placeholder: "Choose a relation", noun: "relation", source: relations };
  const fields = {};
  const slots = {};
  for (const part of PARTS) {
    const choose = (id) => go({ [part]: id, answer: undefined, top: undefined });
    fields[part] = combobox({ label: TITLES[part], ...(part === "relation" ? choice : search), choose });
    slots[part] = h("div", { class: "slot" }, fields[part].element, blank(part));
  }
  const directions = h("fieldset", { class: "switch" }, h("legend", {}, "Find"), Object.keys(FOUND).map(direction));
  const link = (kind) => h("span", { class: kind, "aria-hidden": "true" });
  const element = h(
    "section",
    { class: "question", "aria-label": "Question" },
    directions,
    h("div", { class: "triple" }, slots.head, link("link"), slots.relation, link("link arrow"), slots.tail),
  );

  async function relations(text) {
    const wanted = folded(text);
    return context.relations
      .filter((one) => folded(one.name).includes(wanted) || folded(one.id).includes(wanted))
      .sort((a, b) => folded(b.name).startsWith(wanted) - folded(a.name).startsWith(wanted))
      .slice(0, LISTED)
      .map((one) => ({ ...one, detail: plural(one.facts, "fact") }));
  }

  function update(state) {
    for (const [part, slot] of Object.entries(slots)) slot.classList.toggle("open", part === state.find);
    for (const radio of directions.querySelectorAll("input")) radio.checked = radio.value === state.find;
    for (const part of ["head", "tail"]) named(part, state[part]);
    const relation = context.relations.find((one) => one.id === state.relation);
    fields.relation.set(relation?.name ?? state.relation);
  }

  function named(part, id) {
    fields[part].set(id && nameOf(model(), id));
    if (id) learn(model(), id).then((name) => here()[part] === id && fields[part].set(name));
  }

  return { element, update };
}

function direction(part) {
  const radio = h("input", {
    type: "radio",
    name: "find",
    value: part,
    onchange: () => go({ find: part, answer: undefined, top: undefined }),
  });
  return h("label", {}, radio, h("span", {}, FOUND[part]));
}

function blank(part) {
  return h(
    "div",
    { class: "blank" },
    h("span", { class: "label" }, TITLES[part]),
    h("span", { class: "mark" }, h("span", { class: "unseen" }, "wanted")),
  );
}
