// The address holds the state of the page, so links, back and forward work.

const VIEWS = ["ask", "entity", "map", "model"];
const KEYS = ["model", "find", "head", "relation", "tail", "new", "top", "answer", "entity", "colour"];

/** Parse an address; ignore unknown keys and values. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const state = { view: VIEWS.includes(path) ? path : "ask" };
  for (const key of KEYS) if (given.get(key)) state[key] = given.get(key);
  if (!["head", "relation", "tail"].includes(state.find)) state.find = "tail";
  if (!/^[1-9][0-9]{0,3}$/.test(state.top ?? "")) delete state.top;
  return state;
}

/** Return the address of a state. */
export function address(state) {
  const query = new URLSearchParams();
  for (const key of KEYS) {
    const value = state[key];
    if (value && !(key === "find" && value === "tail")) query.set(key, value);
  }
  const text = query.toString();
  return `#/${state.view}${text ? `?${text}` : ""}`;
}

export const here = () => parse(location.hash);

/** Change the state; `replace` adds no step for the back button. */
export function go(changes, { replace = false } = {}) {
  const to = address({ ...here(), ...changes });
  if (to === location.hash) return;
  if (replace) {
    history.replaceState(null, "", to);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = to;
  }
}

/** Return the address of an entity, or of a question. */
export const toEntity = (id) => address({ view: "entity", model: here().model, entity: id });
export const toQuestion = (head, relation) =>
  address({ view: "ask", model: here().model, find: "tail", head, relation });
