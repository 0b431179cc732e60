// A small graph as SVG: a box for each entity, a curve with relation and sign for each fact.

import { s } from "./dom.js";
import { short, signed } from "./format.js";
import { place } from "./layout.js";
import { toEntity } from "./router.js";

const NODE = { height: 30, padding: 12, font: "600 13px system-ui, sans-serif", letters: 20 };
const LABEL = { height: 18, padding: 5, font: "12px system-ui, sans-serif", letters: 22 };
const NARROW = 480; // px; narrower graphs are upright

const pen = document.createElement("canvas").getContext("2d");
function measured(text, { font, padding }) {
  pen.font = font;
  return pen.measureText(text).width + 2 * padding;
}

/**
 * Draw a graph into a box, and again when the width of the box changes.
 *
 * title: description for screen readers. ends: ids of one or two entities with fixed places.
 * facts: [{head, relation, tail, contribution?, predicted?, along?}], each of head, relation, tail {id, name}; `along`
 * are the places of head and tail on a path between the ends, from 0 to 1.
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
  const nodes = boxesOf([...entities.values()], ends, facts, width, tall, upright);
  const labels = labelsOf(facts, nodes, upright);
  const boxes = [...nodes.values(), ...labels];
  const order = new Map(boxes.map((each, i) => [each, i]));
  place(
    boxes,
    labels.flatMap((label) => [label.from, label.to].map((end) => [order.get(label), order.get(end)])),
    width,
    tall,
  );
  const largest = Math.max(...facts.map((fact) => Math.abs(fact.contribution ?? 0)), 1e-12);
  const top = Math.min(...boxes.map((each) => each.y - each.h / 2)) - 8; // crop the empty part
  const used = Math.max(...boxes.map((each) => each.y + each.h / 2)) + 8 - top;
  return s(
    "svg",
    { viewBox: `0 ${top} ${width} ${used}`, width, height: used, role: "group", "aria-label": title },
    labels.map((label) => curve(label, largest)),
    labels.map(caption),
    [...nodes.values()].map(node),
  );
}

/** Place a box for each entity: pin the ends, put the others around one end or beside their end. */
function boxesOf(entities, ends, facts, width, height, upright) {
  const nodes = new Map();
  const others = entities.filter((entity) => !ends.includes(entity.id));
  for (const entity of entities) {
    const text = short(entity.name, NODE.letters);
    const box = {
      entity,
      text,
      w: measured(text, NODE),
      h: NODE.height,
      end: ends.includes(entity.id),
      pinned: ends.includes(entity.id),
    };
    const along = ends.length === 1 ? 0.5 : ends.indexOf(entity.id); // two ends take the two sides
    const inset = (upright ? box.h : box.w) / 2 + 4;
    const far = inset + along * ((upright ? height : width) - 2 * inset);
    Object.assign(box, upright ? { x: width / 2, y: far } : { x: far, y: height / 2 });
    nodes.set(entity.id, box);
  }
  const fans = [[], [], []]; // of the first end, of the second, of neither or both
  const ways = new Map(facts.flatMap(({ head, tail, along }) => (along ? [[head.id, along[0]], [tail.id, along[1]]] : [])));
  if (ways.size && ends.length === 2) {
    others.forEach(({ id }, i) => Object.assign(nodes.get(id), beside(ways.get(id), i, width, height, upright)));
    return nodes;
  }
  for (const entity of others) fans[ends.length === 1 ? 2 : belongs(entity, ends, facts)].push(nodes.get(entity.id));
  fans.forEach((fan, which) => {
    const end = nodes.get(ends[which]);
    fan.forEach((box, i) =>
      Object.assign(
        box,
        which < 2
          ? opened(fan, i, which, end, width, height, upright)
          : around(fan, i, ends.length, width, height, upright),
      ),
    );
  });
  return nodes;
}

/** Return the end that an entity belongs to: 0 or 1, or 2 for neither or both. */
function belongs(entity, ends, facts) {
  const touches = ends.map((end) =>
    facts.some(({ head, tail }) => [head.id, tail.id].includes(entity.id) && [head.id, tail.id].includes(end)),
  );
  return touches[0] === touches[1] ? 2 : touches[0] ? 0 : 1;
}

/** Return a place in a fan that opens from one end towards the other. */
function opened(fan, i, which, end, width, height, upright) {
  const [side, rank, most] = [i % 2 ? 1 : -1, Math.floor(i / 2), Math.ceil(fan.length / 2)];
  const angle = (Math.PI / 180) * (most < 2 ? 60 : 80 - (50 * rank) / (most - 1)); // from perpendicular to nearly parallel
  const forward = (which ? -1 : 1) * Math.cos(angle);
  const across = side * Math.sin(angle);
  if (upright) return { x: end.x + 0.36 * width * across, y: end.y + 0.42 * height * forward + (which ? -50 : 50) };
  return { x: end.x + 0.34 * width * forward, y: end.y + 0.42 * height * across };
}

/** Return a place on a ring around one end, or beside the line between two ends. */
function around(fan, i, ends, width, height, upright) {
  const angle = Math.PI * ((2 * i + 0.5) / fan.length - (upright ? 1 : 0.5));
  const away = 0.5 + (i % 2 ? 0.34 : -0.34);
  if (ends === 2)
    return upright
      ? { x: width * away, y: height * (0.5 + 0.05 * i) }
      : { x: width * (0.5 + 0.08 * i), y: height * away };
  return { x: width * (0.5 + 0.32 * Math.cos(angle)), y: height * (0.5 + 0.4 * Math.sin(angle)) };
}

/** Return a place along a path between two ends, above or below the line between them. */
function beside(along, i, width, height, upright) {
  const away = 0.5 + (i % 2 ? 0.3 : -0.3);
  return upright ? { x: width * away, y: height * along } : { x: width * along, y: height * away };
}

/** Make a label for each fact, on its curve; facts between the two ends become parallel arcs. */
function labelsOf(facts, nodes, upright) {
  let arcs = 0;
  return facts.map((fact, i) => {
    const sign = fact.contribution === undefined ? "" : ` ${signed(fact.contribution)}`;
    const text = short(fact.relation.name, LABEL.letters) + (fact.predicted ? " ?" : sign);
    const [from, to] = [nodes.get(fact.head.id), nodes.get(fact.tail.id)];
    const label = {
      fact,
      text,
      from,
      to,
      w: measured(text, LABEL),
      h: LABEL.height,
      pinned: from !== to && from.end && to.end,
    };
    label.x = (from.x + to.x) / 2 + (from === to ? 60 : 0);
    label.y = (from.y + to.y) / 2 + (label.pinned ? 0 : i % 2 ? 6 : -6);
    if (label.pinned && !fact.predicted) {
      const step = (arcs % 2 ? 1 : -1) * (1 + Math.floor(arcs++ / 2));
      if (upright) label.x += 0.8 * step * label.w;
      else label.y += 30 * step;
    }
    return label;
  });
}

function tone(fact) {
  if (fact.predicted) return "predicted";
  if (fact.contribution === undefined) return "plain";
  return fact.contribution < 0 ? "minus" : "plus";
}

function curve({ fact, from, to, x, y }, largest) {
  const control = { x: 2 * x - (from.x + to.x) / 2, y: 2 * y - (from.y + to.y) / 2 }; // the curve runs through its label
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
    s("path", {
      class: "line",
      d: `M${outside.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`,
      "stroke-width": width.toFixed(2),
    }),
    s("path", { class: "arrow", d: arrow(before, tip, 6 + width) }),
  );
}

const within = (point, box, margin) =>
  Math.abs(point.x - box.x) < box.w / 2 + margin && Math.abs(point.y - box.y) < box.h / 2 + margin;

function arrow(before, tip, size) {
  const angle = Math.atan2(tip.y - before.y, tip.x - before.x);
  const corner = (turn, length) =>
    `${(tip.x + length * Math.cos(angle + turn)).toFixed(1)} ${(tip.y + length * Math.sin(angle + turn)).toFixed(1)}`;
  return `M${corner(0, 4)}L${corner(2.6, size)}L${corner(-2.6, size)}Z`;
}

function caption({ fact, text, x, y, w }) {
  const long = `${fact.head.name} — ${fact.relation.name} — ${fact.tail.name}`;
  return s(
    "g",
    { class: `caption ${tone(fact)}`, "aria-hidden": "true" }, // the list beside the graph has the same text
    s("title", {}, fact.contribution === undefined ? long : `${long} (${signed(fact.contribution)})`),
    s("rect", { x: x - w / 2 + 2, y: y - 8, width: w - 4, height: 16, rx: 4 }),
    s("text", { x, y, "text-anchor": "middle", "dominant-baseline": "central" }, text),
  );
}

function node({ entity, text, x, y, w, h, end }) {
  return s(
    "a",
    { class: end ? "node end" : "node", href: toEntity(entity.id), "aria-label": `Open ${entity.name}` },
    s("title", {}, entity.name),
    s("rect", { x: x - w / 2, y: y - h / 2, width: w, height: h, rx: h / 2 }),
    s("text", { x, y, "text-anchor": "middle", "dominant-baseline": "central" }, text),
  );
}
