// Is it fine? What limits the run, what is wrong, and what every component does, on one screen.

import { clock, duration, h, number, percent, swatch, table } from "../dom.js";
import { shareBar } from "../draw/bars.js";
import { get } from "../source.js";
import { viewLink } from "../state.js";

const GOOD = ["running", "finished", "starting"];

/** A run's state as a badge. @param {string} state */
export const badge = (state) => h(`span.badge.${GOOD.includes(state) ? "good" : state === "interrupted" || state === "silent" ? "warn" : "bad"}`, {}, state);

/** @param {string[]} runs */
export async function now(runs) {
  const parts = await Promise.all(runs.map(async (run) => one(run, await get(`${run}/now`), await get(`${run}/states`))));
  return h("div.stack", {}, ...parts);
}

/** @param {string} run @param {any} document @param {any} states */
function one(run, document, states) {
  if (!document) return h("p.muted", {}, `${run} has written nothing yet.`);
  const done = document.of_seconds ? Math.min(1, document.run_seconds / document.of_seconds) : null;
  const alarms = [...document.alarms].sort((a, b) => Number(b.active) - Number(a.active) || b.at_seconds - a.at_seconds);
  return h("section.stack", {},
    h("div.panel.head", {},
      h("h1", {}, document.name, " ", badge(document.state)),
      document.error && h("p.error", {}, document.error),
      document.verdict && h("p.verdict", {}, document.verdict),
      h("div.progress", {}, done !== null && h("progress", { max: 1, value: done, "aria-label": "Part of the run that is done" }),
        h("span", {}, clock(document.run_seconds), document.of_seconds ? ` of ${clock(document.of_seconds)} (${percent(done)})` : "",
          ` ${document.clock} time`, document.eta_seconds ? `, ends in about ${duration(document.eta_seconds)}` : "")),
      h("dl.counts", {}, ...document.counts.map((count) =>
        h("div", {}, h("dt", {}, count.label), h("dd", {}, typeof count.value === "number" ? (count.share ? percent(count.value) : number(count.value)) : count.value,
          count.unit && h("small", {}, ` ${count.unit}`)))))),
    h("div.columns", {},
      h("div.panel.stack", {}, h("h2", {}, document.state === "running" ? "What they do now" : "What they did at last"),
        ...document.populations.map((population) => {
          const members = states.populations[population.name];
          return shareBar(members.title, members.states.map((state) => ({ ...state,
            share: (population.states[state.key] ?? 0) / population.size, note: String(population.states[state.key]) })), String(population.size));
        })),
      h("div.panel.stack", {}, h("h2", {}, "Why they were idle"),
        ...Object.entries(document.idle).map(([name, causes]) => {
          const idle = Object.values(causes).reduce((a, b) => a + b, 0);
          return shareBar(states.populations[name].title, [...states.causes.map((cause) => ({ ...cause, share: causes[cause.label] ?? 0 })),
            { label: "at work", color: "var(--grid)", share: 1 - idle }].filter((part) => part.share >= 0.0005), `${percent(idle)} of the time`);
        }))),
    h("div.panel", {}, h("h2", {}, "Alarms"), !alarms.length ? h("p.muted", {}, "None.") :
      table("Alarms", ["#at", "", "what"], alarms.map((alarm) =>
        [h("a", { href: viewLink(run, "schedule", around(alarm.at_seconds)) }, clock(alarm.at_seconds)),
          h(`span.badge.${alarm.active ? "bad" : "plain"}`, {}, alarm.active ? "active" : "over"), alarm.message]))),
    document.waiting.length && h("div.panel", {}, h("h2", {}, "What they wait for"),
      table("Waits", ["who", "#how many", "waits for", "until", "for example"], document.waiting.map((wait) => {
        const members = states.populations[wait.population], state = members?.states.find((state) => state.key === wait.state);
        return [h("span", {}, `${members?.title ?? wait.population}: `, state ? swatch(state) : wait.state), String(wait.count), wait.waits_for, wait.woken_by, wait.example];
      }))));
}

/** A stretch of the schedule around a moment. @param {number} seconds */
export const around = (seconds) => ({ from: String(Math.max(0, seconds - 300)), to: String(seconds + 300) });
