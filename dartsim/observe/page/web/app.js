// The page: what the address names is drawn, and drawn anew when its documents change.

import { h, morph, tabs } from "./dom.js";
import { repaint } from "./draw/plot.js";
import { get, live, open, watch } from "./source.js";
import { current, viewLink } from "./state.js";
import { attempts } from "./views/attempts.js";
import { learning } from "./views/learning.js";
import { now } from "./views/now.js";
import { player } from "./views/player.js";
import { runs } from "./views/runs.js";
import { schedule } from "./views/schedule.js";
import { study } from "./views/study.js";

/** @type {Record<string, (runs: string[]) => Promise<HTMLElement>>} */
const VIEWS = { now, schedule, learning, attempts, player, runs, study };
const TABS = [["Now", "now"], ["Schedule", "schedule"], ["Learning", "learning"], ["Attempts", "attempts"]];
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
let turn = 0, lost = false;

/** Draw what the address names. */
async function draw() {
  const mine = ++turn, state = current(), known = await get("runs") ?? [], hasStudy = !live() && await get("study");
  const named = (state.runs ?? (known.length === 1 ? encodeURIComponent(known[0].id) : "")).split(",").filter(Boolean);
  const view = VIEWS[state.view] && (named.length || state.view === "runs" || state.view === "study") ? state.view : hasStudy ? "study" : named.length ? "now" : "runs";
  watch(named, changed);
  /** @type {HTMLElement} */
  let drawn;
  try {
    drawn = await VIEWS[view](named);
  } catch (error) {
    drawn = h("p.error", { role: "alert" }, error instanceof Error ? error.message : String(error));
  }
  if (mine !== turn) return; // something else is wanted by now
  const names = named.map(decodeURIComponent).join(", ");
  document.title = [names, view, "dartsim"].filter(Boolean).join(" · ");
  morph(document.getElementById("header"), header(view, named, names, known.length > 1, hasStudy));
  const fresh = h("main", { id: "main", tabindex: -1 }, drawn);
  morph(main, fresh);
  main.dataset.drawn = view;
}

/** @param {string} view @param {string[]} named @param {string} names @param {boolean} several @param {any} hasStudy */
function header(view, named, names, several, hasStudy) {
  const list = named.join(",");
  return h("header", { id: "header" }, h("b", {}, "dartsim"),
    tabs("Views", /** @type {[string, string, boolean][]} */ ([several && ["Runs", viewLink("", "runs"), view === "runs"], hasStudy && ["Study", viewLink(list, "study"), view === "study"],
      ...(named.length ? TABS.map(([text, key]) => [text, viewLink(list, key), view === key || view === "player" && key === "attempts"]) : [])].filter(Boolean))),
    h("span.name", {}, names), lost && h("span.badge.bad", { role: "status" }, "the server is gone"),
    h("button.theme", { type: "button", "aria-label": "Light or dark", onclick: shade }, "◐"));
}

/** Change between light and dark. */
function shade() {
  const { style } = document.documentElement, dark = style.colorScheme ? style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  style.colorScheme = dark ? "light" : "dark";
  repaint();
}

let waiting = false;
/** @param {string[] | null} names of documents, or null when the server is lost */
function changed(names) {
  lost = names === null;
  if (waiting) return;
  waiting = true; // changes that come together are drawn together
  setTimeout(() => { waiting = false; draw(); }, 250);
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target), keys = /** @type {any} */ (main.firstChild)?.keys;
  if (!keys?.[event.key] || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && event.key.startsWith("Arrow")) return;
  event.preventDefault();
  keys[event.key]();
});
addEventListener("hashchange", draw);
open().then(draw);
