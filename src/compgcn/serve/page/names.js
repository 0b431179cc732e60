// What ids are called. Every answer teaches some; the rest are asked for.

import { get } from "./api.js";

const known = new Map(); // model and id -> name

const place = (model, id) => `${model}\n${id}`;

export function remember(model, ...things) {
  for (const thing of things.flat()) known.set(place(model, thing.id ?? thing.entity), thing.name);
}

export const nameOf = (model, id) => known.get(place(model, id)) ?? id;

/** The name of an entity that an address named; the id itself where the server knows none. */
export async function learn(model, id) {
  if (!known.has(place(model, id))) {
    try {
      remember(model, (await get("api/neighbourhood", { model, entity: id, limit: 1 })).entity);
    } catch {
      // whoever asks about it will hear why
    }
  }
  return nameOf(model, id);
}
