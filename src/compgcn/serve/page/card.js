// The model card: data, metrics, training curve and settings.

import { failure, h, panel } from "./dom.js";
import { count, figure, plural } from "./format.js";
import { axis, colour, CONFIG, layout, plotly } from "./plot.js";

const TITLES = {
  mrr: "MRR",
  mr: "MR",
  "hits@1": "Hits@1",
  "hits@3": "Hits@3",
  "hits@10": "Hits@10",
  loss: "Loss",
};
const titled = (key) => TITLES[key] ?? key.replaceAll("_", " ");

/** The view "Model". */
export function card(context) {
  const element = h("div", { class: "view card" });
  let shown = "";

  function update(state, again) {
    const model = context.model;
    if (shown === model.id && !again) return;
    shown = model.id;
    element.replaceChildren(
      h(
        "section",
        { class: "lead" },
        h("h1", {}, model.name),
        h("p", { class: "hint" }, `${model.task?.replaceAll("-", " ")} on ${model.data}`),
      ),
      h(
        "dl",
        { class: "tiles" },
        ["entities", "relations", "facts", "parameters"].map((key) =>
          h("div", {}, h("dt", {}, key), h("dd", {}, count(model[key]))),
        ),
      ),
      h("div", { class: "columns" }, quality(model), learning(model)),
      settings(model.config),
    );
  }

  addEventListener("theme", () => element.isConnected && update(null, true));
  return { element, update, title: () => context.model.name };
}

/** Metrics on valid and test, and by the predicted side. */
function quality(model) {
  const rows = [];
  for (const split of ["valid", "test"]) {
    const whole = model.metrics?.[split];
    if (!whole) continue;
    rows.push([split, whole]);
    for (const part of ["head", "tail"]) if (whole[part]) rows.push([`${split}, ${part}s`, whole[part]]);
  }
  if (!rows.length)
    return panel("quality", "Metrics", h("p", { class: "hint" }, "The run is not finished, so it has no metrics yet."));
  const keys = Object.keys(rows[0][1]).filter((key) => typeof rows[0][1][key] === "number");
  const table = h(
    "table",
    {},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Split"),
        keys.map((key) => h("th", { scope: "col", class: "number" }, titled(key))),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map(([name, of]) =>
        h(
          "tr",
          { class: name.includes(",") ? "part" : null },
          h("th", { scope: "row" }, name),
          keys.map((key) => h("td", { class: "number" }, figure(of[key]))),
        ),
      ),
    ),
  );
  const notes = [
    model.metrics.ties ? `Filtered ranks; ties: ${model.metrics.ties}.` : "",
    model.metrics.best_epoch ? `Weights of epoch ${model.metrics.best_epoch}, the best on valid.` : "",
    model.calibrated.length
      ? `Probabilities of ${model.calibrated.join(", ")} are calibrated on valid.`
      : "Probabilities are not calibrated.",
  ];
  return panel(
    "quality",
    "Metrics",
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table of metrics" }, table),
    h("p", { class: "hint" }, notes.filter(Boolean).join(" ")),
  );
}

function learning(model) {
  const { curve } = model;
  if (!curve.length) return panel("learning", "Training", h("p", { class: "hint" }, "The run has no finished epoch."));
  const chart = h("div", {
    class: "chart low",
    role: "img",
    "aria-label": `Loss and validation MRR over ${plural(curve.length, "epoch")}; the table below has the numbers.`,
  });
  draw(chart, curve).catch((error) => chart.replaceChildren(failure(error)));
  const rows = curve.map((point) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: "number" }, point.epoch),
      ["loss", "mrr"].map((key) => h("td", { class: "number" }, figure(point[key]))),
    ),
  );
  return panel(
    "learning",
    "Training",
    chart,
    h(
      "details",
      {},
      h("summary", {}, "Numbers"),
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Epoch", "Loss", "Validation MRR"].map((text) =>
              h("th", { scope: "col", class: "number" }, text),
            ),
          ),
        ),
        h("tbody", {}, rows),
      ),
    ),
  );
}

async function draw(chart, curve) {
  const Plotly = await plotly();
  if (!chart.isConnected) return;
  const line = (key, place, tone, dash) => {
    const points = curve.filter((point) => typeof point[key] === "number");
    return {
      type: "scatter",
      mode: "lines+markers",
      x: points.map((point) => point.epoch),
      y: points.map((point) => point[key]),
      ...place,
      line: { color: tone, width: 2, dash },
      marker: { size: 5 },
      hovertemplate: `epoch %{x}: %{y:.4f}<extra>${titled(key)}</extra>`,
    };
  };
  const narrow = chart.clientWidth < 420; // then one chart above the other
  chart.classList.toggle("high", narrow);
  const epochs = { title: { text: "epoch" } };
  await Plotly.react(
    chart,
    [
      line("loss", {}, colour("--accent"), "solid"),
      line("mrr", { xaxis: "x2", yaxis: "y2" }, colour("--minus"), "dash"),
    ],
    layout({
      showlegend: false,
      xaxis: axis({ ...epochs, domain: narrow ? [0, 1] : [0, 0.42] }),
      yaxis: axis({ title: { text: "loss" }, domain: narrow ? [0.6, 1] : [0, 1] }),
      xaxis2: axis({ ...epochs, domain: narrow ? [0, 1] : [0.58, 1], anchor: "y2" }),
      yaxis2: axis({ title: { text: "validation MRR" }, domain: narrow ? [0, 0.4] : [0, 1], anchor: "x2" }),
    }),
    { ...CONFIG, displayModeBar: false },
  );
}

function settings(config) {
  const list = (entries) =>
    h(
      "dl",
      { class: "settings" },
      entries.map(([key, value]) =>
        h("div", {}, h("dt", {}, key), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value))),
      ),
    );
  return panel(
    "settings",
    "Settings",
    Object.entries(config).map(([name, values]) =>
      h(
        "details",
        { open: name === "encoder" || name === "decoder" },
        h("summary", {}, name),
        list(Object.entries(values)),
      ),
    ),
  );
}
