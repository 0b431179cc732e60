// Layout of a small graph: springs along the edges, no overlap, nothing outside.

const STEPS = 320;
const GAP = 10; // px between boxes

/**
 * Move boxes to their places; the result is deterministic.
 *
 * boxes: [{x, y, w, h, pinned}] with x, y the centre, changed in place. springs: [[i, j]] between connected boxes.
 */
export function place(boxes, springs, width, height) {
  for (let step = 0; step < STEPS; step++) {
    const heat = 1 - step / STEPS;
    const moves = boxes.map(() => ({ x: 0, y: 0 }));
    for (const [i, j] of springs) pull(boxes, moves, i, j);
    for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) repel(boxes, moves, i, j);
    boxes.forEach((box, i) => {
      if (box.pinned) return;
      const size = Math.hypot(moves[i].x, moves[i].y) || 1;
      const most = Math.min(size, 2 + 16 * heat);
      box.x += (moves[i].x / size) * most;
      box.y += (moves[i].y / size) * most;
    });
    for (let round = 0; round < 3; round++) separate(boxes);
    for (const box of boxes) keepInside(box, width, height);
  }
}

function pull(boxes, moves, i, j) {
  const [a, b] = [boxes[i], boxes[j]];
  const [x, y] = [b.x - a.x, b.y - a.y];
  const distance = Math.hypot(x, y) || 1;
  const rest = 26 + (a.h + b.h) / 2 + (Math.abs(x / distance) * (a.w + b.w)) / 2; // wide boxes keep more distance sideways
  const force = (0.09 * (distance - rest)) / distance;
  moves[i].x += force * x;
  moves[i].y += force * y;
  moves[j].x -= force * x;
  moves[j].y -= force * y;
}

function repel(boxes, moves, i, j) {
  const [x, y] = [boxes[i].x - boxes[j].x || 0.1 * (i - j), boxes[i].y - boxes[j].y || 0.1];
  const force = 900 / Math.max(x * x + y * y, 200) / Math.hypot(x, y);
  for (const [k, sign] of [
    [i, 1],
    [j, -1],
  ]) {
    moves[k].x += sign * force * x;
    moves[k].y += sign * force * y;
  }
}

function separate(boxes) {
  for (let i = 0; i < boxes.length; i++) {
    for (let j = 0; j < i; j++) {
      const [a, b] = [boxes[i], boxes[j]];
      const over = { x: (a.w + b.w) / 2 + GAP - Math.abs(a.x - b.x), y: (a.h + b.h) / 2 + GAP - Math.abs(a.y - b.y) };
      if (over.x <= 0 || over.y <= 0) continue;
      const axis = over.x < over.y ? "x" : "y";
      const sign = a[axis] >= b[axis] ? 1 : -1;
      const share = a.pinned || b.pinned ? 1 : 0.5;
      if (!a.pinned) a[axis] += sign * over[axis] * share;
      if (!b.pinned) b[axis] -= sign * over[axis] * share;
    }
  }
}

function keepInside(box, width, height) {
  box.x = Math.min(Math.max(box.x, box.w / 2 + 2), width - box.w / 2 - 2);
  box.y = Math.min(Math.max(box.y, box.h / 2 + 2), height - box.h / 2 - 2);
}
