// A small graph as SVG: entities are boxes with their names, facts are curves with the relation's name and sign on them.

import { s } from "./dom.js";
import { short, signed } from "./format.js";
import { place } from "./layout.js";
import { toEntity } from "./router.js";

const NODE = { height: 30, padding: 12, font: "600 13px system-ui, sans-serif", letters: 20 };
const LABEL = { height: 18, padding: 5, font: "12px system-ui, sans-serif", letters: 22 };
const NARROW = 480; // px below which a graph stands upright

const pen = document.createElement("canvas").getContext("2d");
function measured(text, { font, padding }) {
  pen.font = font;
  return pen.measureText(text).width + 2 * padding;
}

/**
 * Draw a graph into a box and draw it again when the box changes its width.
 *
 * title: what it shows, for those who do not see it. ends: ids of one or two entities that keep their places.
 * facts: [{head, relation, tail, contribution?, predicted?}], each of head, relation, tail {id, name}.
 */
export function graph({ title, ends, facts }) {
  const box = document.createElement("div");
  box.className = "graph";
  let drawn = 0;
  new ResizeObserver(() => {
    const width = Math.round(box.clientWidth);
    if (!width || width === drawn) return;
    drawn = width;
    box.replaceChildren(draw(title, ends, facts, width));
  }).observe(box);
  return box;
}

function draw(title, ends, facts, width) {
  const upright = width < NARROW;
  const entities = new Map();
  for (const fact of facts) for (const end of [fact.head, fact.tail]) entities.set(end.id, end);
  const height = Math.round(Math.max(upright ? 330 : 260, (upright ? 150 : 120) + 26 * (entities.size + facts.length)));
  const tall = Math.min(height, upright ? 640 : 460);
  const nodes = boxesOf([...entities.values()], ends, width, tall, upright);
  const labels = labelsOf(facts, nodes);
  const boxes = [...nodes.values(), ...labels];
  const order = new Map(boxes.map((each, i) => [each, i]));
  place(boxes, labels.flatMap((label) => [label.from, label.to].map((end) => [order.get(label), order.get(end)])), width, tall);
  const largest = Math.max(...facts.map((fact) => Math.abs(fact.contribution ?? 0)), 1e-12);
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${tall}`, width, height: tall, role: "group", "aria-label": title },
    labels.map((label) => curve(label, largest)),
    labels.map(caption),
    [...nodes.values()].map(node),
  );
}

function boxesOf(entities, ends, width, height, upright) {
  const nodes = new Map();
  let i = 0;
  for (const entity of entities) {
    const at = ends.indexOf(entity.id);
    const text = short(entity.name, NODE.letters);
    const box = { entity, text, w: measured(text, NODE), h: NODE.height, end: at >= 0, pinned: at >= 0 };
    if (at >= 0) {
      const along = ends.length === 1 ? 0.5 : at ? 1 : 0; // two ends stand at the two sides
      const inset = (upright ? box.h : box.w) / 2 + 4;
      const length = upright ? height : width;
      const far = inset + along * (length - 2 * inset);
      Object.assign(box, upright ? { x: width / 2, y: far } : { x: far, y: height / 2 });
    } else {
      const angle = -Math.PI / 2 + (i++ * 2 * Math.PI) / Math.max(1, entities.length - ends.length);
      Object.assign(box, { x: width * (0.5 + 0.3 * Math.cos(angle)), y: height * (0.5 + 0.38 * Math.sin(angle)) });
    }
    nodes.set(entity.id, box);
  }
  return nodes;
}

function labelsOf(facts, nodes) {
  return facts.map((fact, i) => {
    const sign = fact.contribution === undefined ? "" : ` ${signed(fact.contribution)}`;
    const text = short(fact.relation.name, LABEL.letters) + (fact.predicted ? " ?" : sign);
    const [from, to] = [nodes.get(fact.head.id), nodes.get(fact.tail.id)];
    const [x, y] = [(from.x + to.x) / 2 + (from === to ? 60 : 0), (from.y + to.y) / 2 + (i % 2 ? 6 : -6)];
    return { fact, text, from, to, x, y, w: measured(text, LABEL), h: LABEL.height, pinned: Boolean(fact.predicted) };
  });
}

function tone(fact) {
  if (fact.predicted) return "predicted";
  if (fact.contribution === undefined) return "plain";
  return fact.contribution < 0 ? "minus" : "plus";
}

function curve({ fact, from, to, x, y }, largest) {
  const control = { x: 2 * x - (from.x + to.x) / 2, y: 2 * y - (from.y + to.y) / 2 }; // so that it runs through its label
  const points = [];
  for (let i = 0; i <= 48; i++) {
    const t = i / 48;
    const at = (axis) => (1 - t) ** 2 * from[axis] + 2 * t * (1 - t) * control[axis] + t ** 2 * to[axis];
    points.push({ x: at("x"), y: at("y") });
  }
  const outside = from === to ? points : points.filter((point) => !within(point, from, 2) && !within(point, to, 5));
  if (outside.length < 2) return null;
  const width = fact.contribution === undefined ? 1.5 : 1.25 + (4.75 * Math.abs(fact.contribution)) / largest;
  const [before, tip] = outside.slice(-2);
  return s(
    "g",
    { class: `edge ${tone(fact)}` },
    s("path", { class: "line", d: `M${outside.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`, "stroke-width": width.toFixed(2) }),
    s("path", { class: "arrow", d: arrow(before, tip, 6 + width) }),
  );
}

const within = (point, box, margin) => Math.abs(point.x - box.x) < box.w / 2 + margin && Math.abs(point.y - box.y) < box.h / 2 + margin;

function arrow(before, tip, size) {
  const angle = Math.atan2(tip.y - before.y, tip.x - before.x);
  const corner = (turn, length) => `${(tip.x + length * Math.cos(angle + turn)).toFixed(1)} ${(tip.y + length * Math.sin(angle + turn)).toFixed(1)}`;
  return `M${corner(0, 4)}L${corner(2.6, size)}L${corner(-2.6, size)}Z`;
}

function caption({ fact, text, x, y, w, h }) {
  const long = `${fact.head.name} — ${fact.relation.name} — ${fact.tail.name}`;
  return s(
    "g",
    { class: `caption ${tone(fact)}`, "aria-hidden": "true" }, // the list beside the graph says it all
    s("title", {}, fact.contribution === undefined ? long : `${long} (${signed(fact.contribution)})`),
    s("rect", { x: x - w / 2, y: y - h / 2, width: w, height: h, rx: 4 }),
    s("text", { x, y, "text-anchor": "middle", "dominant-baseline": "central" }, text),
  );
}

function node({ entity, text, x, y, w, h, end }) {
  return s(
    "a",
    { class: end ? "node end" : "node", href: toEntity(entity.id), "aria-label": `${entity.name}: go to this entity` },
    s("title", {}, entity.name),
    s("rect", { x: x - w / 2, y: y - h / 2, width: w, height: h, rx: h / 2 }),
    s("text", { x, y, "text-anchor": "middle", "dominant-baseline": "central" }, text),
  );
}
