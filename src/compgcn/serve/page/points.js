// The points of the map as Plotly traces.

import { count, plural } from "./format.js";
import { colour } from "./plot.js";

const KINDS = 7; // types with their own colour and shape
const SHAPES = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star"];

function scatter(points, name, marker) {
  return {
    type: "scatter",
    mode: "markers",
    name,
    marker,
    x: points.map((point) => point.x),
    y: points.map((point) => point.y),
    customdata: points.map((point) => point.id),
    text: points.map((point) => `${plain(point.name)}<br>${plural(point.degree, "fact")} · ${plain(point.type)}`),
    hoverinfo: "text",
  };
}

/** Escape tags, which Plotly would interpret. */
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Return a trace for each of the most frequent types, and one for the rest. */
export function byType(points) {
  const groups = new Map();
  for (const point of points) {
    if (!groups.has(point.type)) groups.set(point.type, []);
    groups.get(point.type).push(point);
  }
  const sorted = [...groups].sort((a, b) => b[1].length - a[1].length);
  const others = sorted.slice(KINDS).flatMap(([, some]) => some);
  const traces = sorted
    .slice(0, KINDS)
    .map(([type, some], i) =>
      scatter(some, plain(type), { color: colour(`--kind-${i + 1}`), symbol: SHAPES[i], size: 6, opacity: 0.75 }),
    );
  return others.length
    ? [
        scatter(others, "other types", { color: colour("--muted"), symbol: "circle-open", size: 5, opacity: 0.6 }),
        ...traces,
      ]
    : traces;
}

/** Return one trace, coloured by the number of facts on a logarithmic scale. */
export function byDegree(points) {
  const sorted = [...points].sort((a, b) => a.degree - b.degree); // the best connected on top
  const values = sorted.map((point) => Math.log10(Math.max(1, point.degree)));
  const ticks = [0, 1, 2, 3, 4, 5].filter((power) => power <= Math.max(...values, 1));
  const bar = {
    title: { text: "facts" },
    tickvals: ticks,
    ticktext: ticks.map((power) => count(10 ** power)),
    thickness: 10,
    outlinewidth: 0,
  };
  return [
    {
      ...scatter(sorted, "entities", {
        color: values,
        colorscale: [
          [0, colour("--low")],
          [0.5, colour("--mid")],
          [1, colour("--high")],
        ],
        size: 6,
        opacity: 0.85,
        colorbar: bar,
      }),
      showlegend: false,
    },
  ];
}

/** Return circles around the chosen point, with its name, or around its neighbours. */
export function ring(points, size, width, name) {
  const marker = {
    symbol: "circle-open",
    size,
    color: colour(name === "chosen" ? "--text" : "--accent"),
    line: { width, color: colour("--text") },
  };
  const labels =
    name === "chosen"
      ? {
          mode: "markers+text",
          text: points.map((point) => plain(point.name)),
          textposition: "top center",
          textfont: { size: 14, color: colour("--text") },
        }
      : {};
  return { ...scatter(points, name, marker), ...labels, hoverinfo: "skip", showlegend: false };
}
