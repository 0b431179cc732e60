// A banner tells when the server is down; the page asks until the server is back.

import { get, listen } from "./api.js";
import { h } from "./dom.js";

const HEARTBEAT = 15_000; // ms between checks of an idle server
const WAITS = [1, 2, 3, 5]; // seconds between tries

/** Watch the server; call `recovered` when it is back. */
export function watch(recovered) {
  const banner = document.getElementById("banner");
  let down = false;
  let tries = 0;
  let timer = 0;

  function lost() {
    if (down) return;
    down = true;
    tries = 0;
    banner.className = "down";
    banner.hidden = false;
    banner.replaceChildren(
      h("span", {}, "The server does not answer. This page may be out of date; it tries again every few seconds."),
      h("button", { type: "button", onclick: attempt }, "Try now"),
    );
    plan();
  }

  function plan() {
    const seconds = WAITS[Math.min(tries++, WAITS.length - 1)];
    clearTimeout(timer);
    timer = setTimeout(attempt, seconds * 1000);
  }

  async function attempt() {
    clearTimeout(timer);
    try {
      await get("health");
    } catch {
      plan();
      return;
    }
    down = false;
    banner.className = "up";
    banner.replaceChildren(h("span", {}, "The server is back."));
    timer = setTimeout(() => (banner.hidden = true), 3000);
    recovered();
  }

  listen("down", lost);
  setInterval(() => {
    if (!down && document.visibilityState === "visible") get("health").catch(() => {});
  }, HEARTBEAT);
}
