// The question and its answers: a fact with one part left open, and what the model puts there.

import { get, latest, post } from "./api.js";
import { combobox } from "./combobox.js";
import { failure, h, say, skeleton } from "./dom.js";
import { explanation } from "./explanation.js";
import { count, percent, plural, scale } from "./format.js";
import { learn, nameOf, remember } from "./names.js";
import { go, here, toEntity, toQuestion } from "./router.js";

const TOPS = [10, 25, 50, 100];
const OPEN = { tail: "Tail", head: "Head", relation: "Relation" };

/** Suggestions of entities, as every search field of the page has them. */
export const entitySource = (model) => async (text, signal) => {
  const { entities } = await get("api/entities", { model: model(), q: text, limit: 10 }, signal);
  remember(model(), entities);
  return entities.map((one) => ({ ...one, detail: plural(one.degree, "fact") }));
};

/** The view "Ask". */
export function ask(context) {
  const model = () => context.model.id;
  const fields = {
    head: combobox({
      label: "Head",
      placeholder: "Search an entity",
      noun: "entity",
      source: entitySource(model),
      choose: (id) => set("head", id),
    }),
    relation: combobox({
      label: "Relation",
      placeholder: "Choose a relation",
      noun: "relation",
      source: relations,
      choose: (id) => set("relation", id),
    }),
    tail: combobox({
      label: "Tail",
      placeholder: "Search an entity",
      noun: "entity",
      source: entitySource(model),
      choose: (id) => set("tail", id),
    }),
  };
  const slots = Object.fromEntries(
    Object.entries(fields).map(([part, field]) => [part, h("div", { class: "slot" }, field.element, blank(part))]),
  );
  const directions = h(
    "fieldset",
    { class: "switch" },
    h("legend", {}, "Find"),
    ["tail", "head", "relation"].map(direction),
  );
  const fresh = h("input", {
    type: "checkbox",
    onchange: () => go({ new: fresh.checked ? "1" : undefined, answer: undefined }),
  });
  const answers = h("div", { class: "body" });
  const title = h("h2", { id: "answers" }, "Answers");
  const panel = h(
    "section",
    { class: "panel answers", "aria-labelledby": "answers" },
    h("div", { class: "head" }, title, h("label", { class: "check" }, fresh, "New only")),
    answers,
  );
  const why = explanation(() => go({ answer: undefined }));
  const element = h(
    "div",
    { class: "view ask" },
    h("h1", { class: "unseen" }, "Ask the model"),
    h(
      "section",
      { class: "question", "aria-label": "Question" },
      directions,
      h(
        "div",
        { class: "triple" },
        slots.head,
        h("span", { class: "link", "aria-hidden": "true" }),
        slots.relation,
        h("span", { class: "link arrow", "aria-hidden": "true" }),
        slots.tail,
      ),
    ),
    h("div", { class: "columns" }, panel, why.element),
  );
  const only = latest();
  let asked = "";
  let explained = "";

  function set(part, id) {
    go({ [part]: id, answer: undefined, top: undefined });
  }

  function direction(part) {
    const radio = h("input", {
      type: "radio",
      name: "find",
      value: part,
      onchange: () => go({ find: part, answer: undefined, top: undefined }),
    });
    return h("label", {}, radio, h("span", {}, { tail: "Tails", head: "Heads", relation: "The relation" }[part]));
  }

  function blank(part) {
    return h(
      "div",
      { class: "blank" },
      h("span", { class: "label" }, OPEN[part]),
      h("span", { class: "mark" }, h("span", { class: "unseen" }, "wanted")),
    );
  }

  async function relations(text) {
    const wanted = text.toLowerCase();
    return context.relations
      .filter((one) => one.name.toLowerCase().includes(wanted) || one.id.toLowerCase().includes(wanted))
      .sort((a, b) => b.name.toLowerCase().startsWith(wanted) - a.name.toLowerCase().startsWith(wanted))
      .slice(0, 300)
      .map((one) => ({ ...one, detail: plural(one.facts, "fact") }));
  }

  /** Show a state; with `again`, ask the server even if it was asked the same before. */
  function update(state, again) {
    for (const [part, slot] of Object.entries(slots)) slot.classList.toggle("open", part === state.find);
    for (const radio of directions.querySelectorAll("input")) radio.checked = radio.value === state.find;
    fresh.checked = Boolean(state.new);
    label(state);
    const query = Object.fromEntries(
      Object.keys(OPEN)
        .filter((part) => part !== state.find)
        .map((part) => [part, state[part]]),
    );
    const complete = Object.values(query).every(Boolean);
    const key = JSON.stringify([model(), query, state.new, state.top]);
    if (again || key !== asked) {
      asked = key;
      if (complete) predict(query, state);
      else
        begin(
          state,
          Object.keys(query).find((part) => !query[part]),
        );
    }
    mark(state.answer);
    explain(complete && state.answer ? { ...query, [state.find]: state.answer } : null, again);
  }

  function label(state) {
    for (const part of ["head", "tail"]) {
      fields[part].set(state[part] && nameOf(model(), state[part]));
      if (state[part])
        learn(model(), state[part]).then((name) => here()[part] === state[part] && fields[part].set(name));
    }
    const relation = context.relations.find((one) => one.id === state.relation);
    fields.relation.set(relation?.name ?? state.relation);
  }

  function explain(fact, again) {
    const key = JSON.stringify([model(), fact]);
    if (!again && key === explained) return;
    explained = key;
    element.classList.toggle("explained", Boolean(fact));
    if (fact) why.show(model(), fact);
    else why.clear();
  }

  function begin(state, missing) {
    only.cancel();
    panel.removeAttribute("aria-busy");
    title.textContent = "Answers";
    const begun = state.head || state.relation || state.tail;
    const hint = begun
      ? `Now choose the ${missing}.`
      : "Search an entity and choose a relation, or start from an example.";
    const examples = context.model.examples ?? [];
    answers.replaceChildren(
      begun
        ? ""
        : h(
            "p",
            { class: "intro" },
            "Which facts are missing? ",
            h("b", {}, context.model.name),
            ` has learned from ${plural(context.model.facts, "fact")} about ${plural(context.model.entities, "entity")} and completes others.`,
          ),
      h("p", { class: "hint" }, hint),
      examples.length ? h("ul", { class: "chips", "aria-label": "Examples" }, examples.map(example)) : "",
    );
  }

  function example({ head, relation }) {
    remember(model(), head);
    return h(
      "li",
      {},
      h(
        "a",
        { class: "chip", href: toQuestion(head.id, relation.id) },
        h("b", {}, head.name),
        ` ${relation.name} `,
        h("i", {}, "?"),
      ),
    );
  }

  async function predict(query, state) {
    panel.setAttribute("aria-busy", "true");
    if (!answers.querySelector(".ranked")) answers.replaceChildren(skeleton(8));
    const top = Number(state.top ?? TOPS[0]);
    const got = await only((signal) =>
      post("api/predict", { model: model(), ...query, top, new: Boolean(state.new) }, signal),
    );
    if (!got) return;
    panel.removeAttribute("aria-busy");
    if (got.error) answers.replaceChildren(failure(got.error, () => predict(query, state)));
    else list(got.value, top, state.find);
  }

  function list(found, top, part) {
    const entities = found.answers_are === "entities";
    if (entities) remember(model(), found.answers);
    title.textContent = `Most probable ${{ tail: "tails", head: "heads", relation: "relations" }[part]}`;
    if (!found.answers.length) {
      answers.replaceChildren(
        h("p", { class: "hint" }, "There is no such answer: everything that could stand here is in the data already."),
      );
      return;
    }
    const end = scale(found.answers.map((one) => one.probability));
    answers.replaceChildren(
      h(
        "ol",
        { class: "ranked", onkeydown: walk },
        found.answers.map((one) => row(one, end, entities)),
      ),
      h(
        "div",
        { class: "foot" },
        h(
          "span",
          { class: "hint" },
          `A full bar is ${count(100 * end)}\u202f%. `,
          context.model.calibrated ? "Probabilities are calibrated." : "Probabilities are not calibrated.",
        ),
        found.answers.length === top && top < TOPS.at(-1)
          ? h(
              "button",
              {
                type: "button",
                class: "quiet",
                onclick: () => go({ top: TOPS.find((one) => one > top) }, { replace: true }),
              },
              "Show more",
            )
          : null,
      ),
    );
    mark(here().answer);
    say(`${found.answers.length} answers. First: ${found.answers[0].name}, ${percent(found.answers[0].probability)}.`);
  }

  function row(one, end, entities) {
    const known = one.known
      ? h(
          "span",
          { class: `badge ${one.known}`, title: `This fact stands in ${one.known} already` },
          "known · ",
          one.known,
        )
      : null;
    return h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: "answer",
          "data-id": one.entity,
          "aria-pressed": "false",
          onclick: () => choose(one.entity),
        },
        h("span", { class: "rank" }, one.rank),
        h("span", { class: "name" }, one.name, known),
        h("span", { class: "bar", "aria-hidden": "true", vars: { "--share": Math.min(1, one.probability / end) } }),
        h("span", { class: "value", title: `score ${one.score.toFixed(3)}` }, percent(one.probability)),
      ),
      entities
        ? h(
            "a",
            { class: "visit", href: toEntity(one.entity), "aria-label": `Go to ${one.name}`, title: "Neighbourhood" },
            "↗",
          )
        : null,
    );
  }

  function choose(id) {
    go({ answer: id });
    if (matchMedia("(max-width: 60rem)").matches) {
      // the explanation stands under the answers
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      setTimeout(() => why.element.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" }), 50);
    }
  }

  function mark(id) {
    for (const button of answers.querySelectorAll(".answer"))
      button.setAttribute("aria-pressed", String(button.dataset.id === id));
  }

  function walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.matches(".answer")) return;
    event.preventDefault();
    const buttons = [...answers.querySelectorAll(".answer")];
    buttons[buttons.indexOf(event.target) + step]?.focus();
  }

  return { element, update, title: (state) => [state.head, state.relation].filter(Boolean).join(" ") || "Ask" };
}
