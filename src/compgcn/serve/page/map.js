// The view "Map": entity embeddings on their first two principal components.

import { get, latest } from "./api.js";
import { failure, h, panel, say, skeleton } from "./dom.js";
import { count, plural } from "./format.js";
import { nameOf, remember } from "./names.js";
import { axis, CONFIG, layout, plotly } from "./plot.js";
import { byDegree, byType, ring } from "./points.js";
import { entitySearch } from "./question.js";
import { address, go, here, toEntity } from "./router.js";

const MOST = 5000; // points; more would be slow

/** The view "Map". */
export function map(context) {
  const model = () => context.model.id;
  const search = entitySearch("Find on the map", model);
  const select = h(
    "select",
    {
      id: "colour",
      onchange: () => go({ colour: select.value === "type" ? undefined : select.value }, { replace: true }),
    },
    h("option", { value: "type" }, "type"),
    h("option", { value: "degree" }, "number of facts"),
  );
  const chart = h("div", { class: "chart", role: "img" });
  const body = h("div", { class: "body" });
  const note = h("p", { class: "hint" });
  const chosen = h("div", { class: "body" });
  const shown = h(
    "section",
    { class: "panel", "aria-labelledby": "map" },
    h(
      "div",
      { class: "head" },
      h("h1", { id: "map" }, "Map of embeddings"),
      h("label", { class: "field" }, "Colour by", select),
    ),
    body,
    note,
  );
  const side = panel("chosen", "Chosen", search.element);
  side.append(chosen);
  const element = h("div", { class: "view map" }, h("div", { class: "columns" }, shown, side));
  const [only, onlyAlike] = [latest(), latest()];
  let points = null;
  let of = ""; // id of the points' model
  let found = null; // the chosen entity and its neighbours
  let alike = []; // ids of these neighbours

  async function update(state, again) {
    select.value = state.colour === "degree" ? "degree" : "type";
    search.set(state.entity && nameOf(model(), state.entity));
    choose(state.entity);
    if (of !== model() || again) {
      of = model();
      points = null;
      shown.setAttribute("aria-busy", "true");
      body.replaceChildren(skeleton(10));
      const got = await only(
        async (signal) => (await Promise.all([get("api/map", { model: model(), limit: MOST }, signal), plotly()]))[0],
      );
      if (!got) return;
      shown.removeAttribute("aria-busy");
      if (got.error) {
        of = "";
        body.replaceChildren(failure(got.error, () => update(here(), true)));
        return;
      }
      points = got.value.points;
      remember(model(), points);
      tell(got.value);
      describe();
      body.replaceChildren(chart);
    }
    if (points) draw(here());
  }

  function tell({ explained }) {
    const shares = explained.map((share) => `${Math.round(100 * share)}\u202f%`).join(" and ");
    const part =
      points.length < context.model.entities
        ? `${count(points.length)} of ${plural(context.model.entities, "entity")}`
        : plural(points.length, "entity");
    note.textContent = `${part}. The two principal components hold ${shares} of the variance, so neighbours on the map are not always neighbours in all dimensions.`;
    chart.setAttribute(
      "aria-label",
      `Scatter plot of ${part}. Use the search beside it to find an entity and its neighbours.`,
    );
  }

  async function draw(state) {
    const Plotly = await plotly();
    if (!element.isConnected) return; // the user has opened another view
    const traces = state.colour === "degree" ? byDegree(points) : byType(points);
    const rest = new Set(alike);
    traces.push(
      ring(
        points.filter((point) => rest.has(point.id)),
        11,
        1.5,
        "similar",
      ),
    );
    traces.push(
      ring(
        points.filter((point) => point.id === state.entity),
        18,
        3,
        "chosen",
      ),
    );
    const bare = axis({ showticklabels: false, ticks: "", showgrid: false, showline: false });
    const narrow = chart.clientWidth < 520;
    await Plotly.react(
      chart,
      traces,
      layout({
        xaxis: bare,
        yaxis: bare,
        margin: { l: 8, r: 8, t: 8, b: 8 },
        hovermode: "closest",
        dragmode: narrow ? false : "pan",
        uirevision: of,
        legend: { orientation: "h", y: -0.02, yanchor: "top", itemsizing: "constant", font: { size: 12 } },
      }),
      { ...CONFIG, scrollZoom: !narrow },
    );
    chart.removeAllListeners("plotly_click");
    chart.on("plotly_click", ({ points: [point] }) => go({ entity: point.customdata }));
  }

  async function choose(id) {
    found = null;
    if (!id) {
      onlyAlike.cancel();
      alike = [];
      chosen.replaceChildren(h("p", { class: "hint" }, "Click a point, or search an entity above."));
      return;
    }
    const got = await onlyAlike((signal) => get("api/similar", { model: model(), entity: id, top: 8 }, signal));
    if (!got) return;
    if (got.error) {
      chosen.replaceChildren(failure(got.error, () => choose(id)));
      return;
    }
    const { entity, answers } = (found = got.value);
    remember(model(), entity, answers);
    search.set(entity.name);
    alike = answers.map((one) => one.id);
    describe();
    say(`${entity.name} chosen.`);
    if (points) draw(here());
  }

  function describe() {
    if (!found) return;
    const { entity, answers } = found;
    const point = points?.find((one) => one.id === entity.id);
    chosen.replaceChildren(
      h("h3", { class: "name" }, entity.name),
      point
        ? h("p", { class: "hint" }, `${plural(point.degree, "fact")} · ${point.type}`)
        : points
          ? h("p", { class: "hint" }, "The map does not show this entity.")
          : "",
      h(
        "p",
        { class: "actions" },
        h("a", { class: "button", href: toEntity(entity.id) }, "Neighbourhood"),
        h(
          "a",
          { class: "button quiet", href: address({ view: "ask", model: context.chosen(), head: entity.id }) },
          "Ask about it",
        ),
      ),
      h("h3", {}, "Most similar in all dimensions"),
      h(
        "ul",
        { class: "chips" },
        answers.map((one) =>
          h("li", {}, h("a", { class: "chip", href: address({ ...here(), entity: one.id }) }, one.name)),
        ),
      ),
    );
  }

  addEventListener("theme", () => points && element.isConnected && draw(here()));
  return { element, update, title: () => "Map" };
}
