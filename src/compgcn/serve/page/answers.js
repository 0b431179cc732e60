// The answers of the model, most probable first.

import { latest, post } from "./api.js";
import { failure, h, say, skeleton } from "./dom.js";
import { count, percent, plural, scale } from "./format.js";
import { remember } from "./names.js";
import { go, here, toEntity, toQuestion } from "./router.js";

const TOPS = [10, 25, 50, 100];
const FOUND = { tail: "tails", head: "heads", relation: "relations" };

/** The panel of answers: `predict(query, state)` fetches them, `begin(state, missing)` helps while a part is missing. */
export function answers(context, choose) {
  const model = () => context.model.id;
  const fresh = h("input", {
    type: "checkbox",
    onchange: () => go({ new: fresh.checked ? "1" : undefined, answer: undefined }),
  });
  const title = h("h2", { id: "answers" }, "Answers");
  const body = h("div", { class: "body" });
  const element = h(
    "section",
    { class: "panel answers", "aria-labelledby": "answers" },
    h("div", { class: "head" }, title, h("label", { class: "check" }, fresh, "New only")),
    body,
  );
  const only = latest();

  function begin(state, missing) {
    only.cancel();
    element.removeAttribute("aria-busy");
    title.textContent = "Answers";
    const begun = state.head || state.relation || state.tail;
    const hint = "Search an entity and choose a relation, or start from an example.";
    const examples = context.model.examples;
    body.replaceChildren(
      begun ? "" : intro(context.model),
      h("p", { class: "hint" }, begun ? `Now choose the ${missing}.` : hint),
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
    element.setAttribute("aria-busy", "true");
    if (!body.querySelector(".ranked")) body.replaceChildren(skeleton(8));
    const top = Number(state.top ?? TOPS[0]);
    const got = await only((signal) =>
      post("api/predict", { model: model(), ...query, top, new: Boolean(state.new) }, signal),
    );
    if (!got) return;
    element.removeAttribute("aria-busy");
    if (got.error) body.replaceChildren(failure(got.error, () => predict(query, state)));
    else list(got.value, top, state.find);
  }

  function list(found, top, part) {
    const entities = found.answers_are === "entities";
    if (entities) remember(model(), found.answers);
    title.textContent = `Most probable ${FOUND[part]}`;
    if (!found.answers.length) {
      body.replaceChildren(
        h("p", { class: "hint" }, "No new answer: the data already contain every candidate."),
      );
      return;
    }
    const end = scale(found.answers.map((one) => one.probability));
    const calibrated = context.model.calibrated.includes(found.answers_are);
    body.replaceChildren(
      h(
        "ol",
        { class: "ranked", onkeydown: walk },
        found.answers.map((one) => row(one, end, entities, choose)),
      ),
      h(
        "div",
        { class: "foot" },
        h(
          "span",
          { class: "hint" },
          `A full bar is ${count(100 * end)}\u202f%. `,
          calibrated ? "Probabilities are calibrated." : "Probabilities are not calibrated.",
          calibrated && mixed(found.answers)
            ? " Known and new answers are calibrated apart, so a bar can be longer than the one above it."
            : "",
        ),
        found.answers.length === top && top < Math.min(TOPS.at(-1), entities ? Infinity : context.relations.length)
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
    mark(here());
    say(`${found.answers.length} answers. First: ${found.answers[0].name}, ${percent(found.answers[0].probability)}.`);
  }

  /** Mark the explained answer and the state of the filter. */
  function mark(state) {
    fresh.checked = Boolean(state.new);
    for (const button of body.querySelectorAll(".answer"))
      button.setAttribute("aria-pressed", String(button.dataset.id === state.answer));
  }

  return { element, begin, predict, mark };
}

/** Whether a list has both known and new facts. */
const mixed = (answers) => new Set(answers.map((one) => Boolean(one.known))).size === 2;

function intro({ name, facts, entities }) {
  const from = ` has learned from ${plural(facts, "fact")} about ${plural(entities, "entity")} and predicts missing ones.`;
  return h("p", { class: "intro" }, "Which facts are missing? ", h("b", {}, name), from);
}

function row(one, end, entities, choose) {
  const known = one.known
    ? h(
        "span",
        { class: `badge ${one.known}`, title: `The ${one.known} split already contains this fact` },
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
        "data-id": one.id,
        "aria-pressed": "false",
        onclick: () => choose(one.id),
      },
      h("span", { class: "rank" }, one.rank),
      h("span", { class: "name" }, one.name, known),
      h("span", { class: "bar", "aria-hidden": "true", vars: { "--share": Math.min(1, one.probability / end) } }),
      h("span", { class: "value", title: `score ${one.score.toFixed(3)}` }, percent(one.probability)),
    ),
    entities
      ? h(
          "a",
          { class: "visit", href: toEntity(one.id), "aria-label": `Open ${one.name}`, title: "Neighbourhood" },
          "↗",
        )
      : null,
  );
}

function walk(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches(".answer")) return;
  event.preventDefault();
  const buttons = [...event.currentTarget.querySelectorAll(".answer")];
  buttons[buttons.indexOf(event.target) + step]?.focus();
}
