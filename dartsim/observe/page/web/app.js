// The page: what the address names is drawn, and drawn anew when its documents change.

import { h, morph, tabs } from "./dom.js";
import { get, holds, open, watch } from "./source.js";
import { current, encoded, viewLink } from "./state.js";
import { attempts } from "./views/attempts.js";
import { learning } from "./views/learning.js";
import { now } from "./views/now.js";
import { player } from "./views/player.js";
import { runs } from "./views/runs.js";
import { schedule } from "./views/schedule.js";
import { study } from "./views/study.js";

/** @type {Record<string, (runs: string[]) => Promise<HTMLElement>>} */
const RUN_VIEWS = { now, schedule, learning, attempts, player };
const VIEWS = { ...RUN_VIEWS, runs, study };
const TABS = [["Now", "now"], ["Schedule", "schedule"], ["Learning", "learning"], ["Attempts", "attempts"]];
let turn = 0, connected = true;

/** What is looked at: a view of runs, or of several. */
async function wanted() {
  const known = await get("runs"), state = current(), compared = state.view === "study" || holds("study");
  const only = known?.length === 1 ? encoded(known[0].id) : "";
  const named = (state.runs || only).split(",").filter(Boolean);
  const first = compared ? "study" : named.length ? "now" : "runs";
  const view = state.view in RUN_VIEWS && !named.length ? first : state.view in VIEWS ? state.view : first;
  return { view, named, several: known?.length > 1, compared };
}

/** Draw it. */
async function draw() {
  const mine = ++turn;
  let view = "", drawn, header;
  try {
    const shown = await wanted();
    view = shown.view;
    watch(shown.named, changed);
    header = heading(shown);
    drawn = await VIEWS[view](shown.named);
  } catch (error) {
    drawn = h("p.error", { role: "alert" }, error instanceof Error ? error.message : String(error));
  }
  if (mine !== turn) return; // something else is wanted by now
  if (header) morph(document.getElementById("header"), header);
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  morph(main, h("main", { id: "main", tabindex: -1, "data-drawn": view }, drawn));
}

/** @param {{view: string, named: string[], several: boolean, compared: boolean}} shown */
function heading({ view, named, several, compared }) {
  const list = named.join(","), names = named.map(decodeURIComponent).join(", ");
  document.title = [names, view, "dartsim"].filter(Boolean).join(" · ");
  /** @type {[string, string, boolean][]} */
  const links = [];
  if (several) links.push(["Runs", viewLink("", "runs"), view === "runs"]);
  if (compared) links.push(["Study", viewLink(list, "study"), view === "study"]);
  for (const [text, key] of named.length ? TABS : []) {
    links.push([text, viewLink(list, key), view === key || view === "player" && key === "attempts"]);
  }
  return h("header", { id: "header" }, h("b", {}, "dartsim"), tabs("Views", links), h("span.name", {}, names),
    !connected && h("span.badge.bad", { role: "status" }, "the server is gone"));
}

let busy = false, again = false;
/** Draw what changed, once the last drawing is done. @param {boolean} answering whether the server does */
async function changed(answering) {
  connected = answering;
  again = true;
  if (busy) return;
  busy = true;
  while (again) {
    again = false;
    await draw();
    await new Promise((done) => setTimeout(done, 250)); // changes that come together are drawn together
  }
  busy = false;
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target), typing = target.matches("select, input:not([type=range])");
  const act = /** @type {any} */ (document.querySelector("main > section"))?.keys?.[event.key];
  if (!act || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
addEventListener("hashchange", draw);
open().then(draw);
