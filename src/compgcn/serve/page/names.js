// Names of ids: remembered from answers, else fetched.

import { get } from "./api.js";

const known = new Map(); // model and id -> name

const place = (model, id) => `${model}\n${id}`;

export function remember(model, ...things) {
  for (const thing of things.flat()) known.set(place(model, thing.id), thing.name);
}

export const nameOf = (model, id) => known.get(place(model, id)) ?? id;

/** Return the name of an entity in the address, or the id if the server does not know it. */
export async function learn(model, id) {
  if (!known.has(place(model, id))) {
    try {
      remember(model, (await get("api/neighbourhood", { model, entity: id, limit: 1 })).entity);
    } catch {
      // the view's own request reports the error
    }
  }
  return nameOf(model, id);
}
