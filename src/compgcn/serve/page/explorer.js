// The explorer: read the address, load the models, show a view.

import { get, listen, useKey, waitFor } from "./api.js";
import { ask } from "./ask.js";
import { card } from "./card.js";
import { watch } from "./connection.js";
import { failure, h, skeleton } from "./dom.js";
import { entity } from "./entity.js";
import { map } from "./map.js";
import { address, go, here } from "./router.js";

const main = document.getElementById("main");
const select = document.getElementById("model");
const CREATE = { ask, entity, map, model: card };
const views = {};
const last = {}; // view -> its last state
let models = [];
let turn = 0; // only the latest rendering counts

/** Shared by the views: the model, its relations, and its id if the address names it. */
const context = { model: null, relations: [], chosen: () => here().model };

async function render(again = false) {
  const mine = ++turn;
  const state = here();
  try {
    if (!models.length || again) await load();
    await choose(state.model);
  } catch (error) {
    if (mine === turn) main.replaceChildren(failure(error, () => render(true)));
    return;
  }
  if (mine !== turn) return;
  document.querySelector('nav a[data-view="map"]').hidden = !context.model.vectors;
  if (state.view === "map" && !context.model.vectors) {
    location.replace(address({ view: "entity", model: state.model, entity: state.entity }));
    return;
  }
  const view = (views[state.view] ??= CREATE[state.view](context));
  if (view.element.parentNode !== main) main.replaceChildren(view.element);
  last[state.view] = state;
  for (const link of document.querySelectorAll("nav a")) lead(link, state);
  view.update(state, again);
  document.title = `${view.title(state)} · compgcn explorer`;
}

/** Point a navigation link to the last state of its view, with the present entity. */
function lead(link, state) {
  const { view } = link.dataset;
  const before = last[view]?.model === state.model ? last[view] : undefined;
  const entity = state.entity ?? state.head ?? before?.entity;
  link.href = address({
    ...before,
    view,
    model: state.model,
    entity: ["entity", "map"].includes(view) ? entity : undefined,
  });
  if (view === state.view) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}

async function load() {
  if (!main.querySelector(".view")) main.replaceChildren(skeleton(8));
  const found = await get("api/models");
  models = found.models;
  waitFor(found.timeout);
  select.replaceChildren(...models.map((one) => h("option", { value: one.id }, label(one))));
  select.disabled = models.length < 2;
  context.model = null;
}

/** Return a model's name, with its id if several models share name and data. */
function label(one) {
  const twins = models.filter((other) => other.name === one.name && other.data === one.data).length > 1;
  return `${one.name} on ${one.data}${twins ? ` (${one.id})` : ""}`;
}

async function choose(id) {
  const model = id ? models.find((one) => one.id === id) : models[0];
  if (!model) throw new Error(id ? `there is no model ${id} here; choose one above` : "the server has no model");
  if (model !== context.model) {
    context.relations = (await get("api/relations", { model: model.id })).relations;
    context.model = model;
  }
  select.value = model.id;
}

select.addEventListener("change", () => {
  const next = models.find((one) => one.id === select.value);
  const same = next.data === context.model?.data; // the same data allow the same question
  if (same) go({ model: next.id, answer: undefined });
  else location.hash = address({ view: here().view, model: next.id });
});

function askForKey() {
  const banner = document.getElementById("banner");
  if (banner.querySelector("form")) return;
  const field = h("input", { type: "password", id: "key", autocomplete: "current-password", required: true });
  const submit = (event) => {
    event.preventDefault();
    useKey(field.value);
    banner.hidden = true;
    banner.replaceChildren();
    render(true);
  };
  banner.className = "key";
  banner.hidden = false;
  banner.replaceChildren(
    h(
      "form",
      { onsubmit: submit },
      h("label", { for: "key" }, "This server needs its API key."),
      field,
      h("button", {}, "Continue"),
    ),
  );
  field.focus();
}

listen("key", askForKey);
addEventListener("hashchange", () => location.hash !== "#main" && render());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the state; keep it
  main.focus();
});
watch(() => render(true));
render();
