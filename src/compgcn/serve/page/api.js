// Requests to the server: answers, refusals, and timeouts.

let patience = 35_000; // ms until a request counts as unanswered; longer than the server's own limit

/** Set the timeout a little longer than the server's own, in seconds. */
export function waitFor(seconds) {
  patience = 1000 * (seconds + 5);
}

/** A refusal, with the server's sentence. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.name = "Refused";
    this.status = status;
  }
}

/** No answer from the server. */
export class Down extends Error {
  constructor() {
    super("the server does not answer");
    this.name = "Down";
  }
}

const heard = new EventTarget(); // events: "down", "key"
export const listen = (what, handler) => heard.addEventListener(what, handler);

let key = "";
try {
  key = sessionStorage.getItem("key") ?? "";
} catch {
  // the browser may forbid storage
}

/** Remember the API key until the tab is closed. */
export function useKey(given) {
  key = given;
  try {
    sessionStorage.setItem("key", given);
  } catch {
    // then the key lasts as long as the page
  }
}

export const get = (path, params = {}, signal = undefined) => {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== ""));
  return ask(`${path}?${query}`, {}, signal);
};

export const post = (path, body, signal = undefined) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }, signal);

async function ask(path, options, signal) {
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const limits = [AbortSignal.timeout(patience), ...(signal ? [signal] : [])];
  let response, body;
  try {
    response = await fetch(path, { ...options, headers, signal: AbortSignal.any(limits), cache: "no-store" });
    body = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error; // the page no longer needs it
    throw silent();
  }
  // such a status without our sentence comes from a proxy whose server is gone
  if ([502, 503, 504].includes(response.status) && !told(body)) throw silent();
  if (response.status === 401) heard.dispatchEvent(new Event("key"));
  if (!response.ok)
    throw new Refused(response.status, told(body) ?? `the server refused with status ${response.status}`);
  try {
    return JSON.parse(body);
  } catch {
    throw new Refused(response.status, "the server's answer is not JSON; is this a compgcn server?");
  }
}

function silent() {
  heard.dispatchEvent(new Event("down"));
  return new Down();
}

/** Return the sentence of a refusal, or null. */
function told(body) {
  try {
    const { detail } = JSON.parse(body);
    return typeof detail === "string" ? detail : null;
  } catch {
    return null;
  }
}

/** Run requests of which only the latest counts: a new one, or `cancel()`, aborts the one before. */
export function latest() {
  let running = null;
  const only = async (request) => {
    running?.abort();
    const mine = (running = new AbortController());
    try {
      const value = await request(mine.signal);
      return mine.signal.aborted ? null : { value };
    } catch (error) {
      return mine.signal.aborted ? null : { error };
    }
  };
  only.cancel = () => running?.abort();
  return only;
}
