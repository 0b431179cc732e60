// The view "Ask": a fact with one part missing, the answers, and their explanation.

import { answers } from "./answers.js";
import { h } from "./dom.js";
import { explanation } from "./explanation.js";
import { PARTS, question } from "./question.js";
import { go } from "./router.js";

export function ask(context) {
  const model = () => context.model.id;
  const asking = question(context);
  const found = answers(context, choose);
  const why = explanation(() => go({ answer: undefined }));
  const element = h(
    "div",
    { class: "view ask" },
    h("h1", { class: "unseen" }, "Ask the model"),
    asking.element,
    h("div", { class: "columns" }, found.element, why.element),
  );
  let asked = "";
  let explained = "";

  /** Show a state; `again` repeats the request even if nothing changed. */
  function update(state, again) {
    asking.update(state);
    const given = PARTS.filter((part) => part !== state.find);
    const query = Object.fromEntries(given.map((part) => [part, state[part]]));
    const missing = given.find((part) => !state[part]);
    const key = JSON.stringify([model(), query, state.new, state.top]);
    if (again || key !== asked) {
      asked = key;
      if (missing) found.begin(state, missing);
      else found.predict(query, state);
    }
    found.mark(state);
    explain(!missing && state.answer ? { ...query, [state.find]: state.answer } : null, state.find, again);
  }

  function explain(fact, find, again) {
    const key = JSON.stringify([model(), fact, find]);
    if (!again && key === explained) return;
    explained = key;
    element.classList.toggle("explained", Boolean(fact));
    if (fact) why.show(model(), fact, find);
    else why.clear();
  }

  function choose(id) {
    go({ answer: id });
    if (!matchMedia("(max-width: 60rem)").matches) return;
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
    setTimeout(() => why.element.scrollIntoView({ behavior, block: "start" }), 50); // it is below the answers
  }

  return { element, update, title: (state) => [state.head, state.relation].filter(Boolean).join(" ") || "Ask" };
}
