// When each desktop, engine and the trainer did what, from days to one request.

import { h, swatch } from "../dom.js";
import { lanesPlot } from "../draw/lanes.js";
import { get } from "../source.js";
import { current, note, viewLink } from "../state.js";

/** @type {number | undefined} */
let noting;

/** @param {string[]} runs */
export async function schedule(runs) {
  const found = await Promise.all(runs.map(async (run) =>
    ({ run, lanes: await get(`${run}/lanes`), states: await get(`${run}/states`) })));
  const drawn = found.filter(({ lanes }) => lanes?.populations.length);
  if (!drawn.length) return h("p.muted", {}, "No schedule was recorded yet.");
  return h("section.stack", {},
    h("div.bar-row", {}, h("span.muted", {}, "Wheel or pinch zooms, dragging moves, a click opens an attempt."),
      h("form", { onsubmit: jump }, h("label.field", {}, "Go to", h("input", { name: "at", placeholder: "03:12", size: 8 })))),
    ...drawn.map(({ run, lanes, states }) => h("figure.panel", {},
      runs.length > 1 && h("figcaption", {}, h("b", {}, decodeURIComponent(run))), lanesPlot(data(run, lanes, states)))),
    h("div.panel.key", {}, ...Object.values(drawn[0].states.populations).map((population) =>
      h("p.legend", {}, h("b", {}, population.title), ...population.states.map(swatch))),
      h("p.legend.muted", {}, "Above the lanes: v7 is the update that made version 7; red marks are faults, amber alarms, orange weight syncs. " +
        "Below desktops, engines and trainer: why they were idle, where single stays are kept.")));
}

/** Show the minutes around a time of the run. @param {SubmitEvent} event */
function jump(event) {
  event.preventDefault();
  const text = /** @type {any} */ (event.target).elements.at.value, parts = text.split(":").map(Number);
  const at = parts.reduce((sum, part, k) => sum + part * 60 ** (2 - k), 0);
  const plot = /** @type {any} */ (document.querySelector("lanes-plot"));
  if (text && Number.isFinite(at)) plot.show(at - 150, at + 150);
}

/** What the plot draws of a run's documents. @param {string} run @param {any} lanes @param {any} states
 * @returns {import("../draw/lanes.js").Lanes} */
function data(run, lanes, states) {
  const { from, to } = current();
  return {
    ...lanes,
    name: decodeURIComponent(run),
    view: from && to ? [Number(from), Number(to)] : null,
    populations: lanes.populations.flatMap((population) => [{ ...population, ...states.populations[population.name] },
      ...why(population.name, lanes.idle, states.causes)]),
    marks: lanes.marks.map(({ seconds, kind, label }) => ({ time: seconds, kind, label: label.replace(/^update /, "v") })),
    load: async (id) => tracks(await get(`${run}/lanes/${id}`)),
    attempt: (attempt) => viewLink(run, "player", { attempt: String(attempt) }),
    moved: ([from, to]) => {
      clearTimeout(noting);
      noting = setTimeout(() => current().view === "schedule" && note({ from: from.toFixed(2), to: to.toFixed(2) }), 200);
    },
  };
}

/** A band with the causes for which a population was idle, where they are known. @param {string} name @param {any} idle
 * @param {any[]} causes @returns {import("../draw/lanes.js").Population[]} */
function why(name, idle, causes) {
  const found = Object.entries(idle?.shares[name] ?? {});
  if (!found.length) return [];
  const states = found.map(([label]) => causes.find((cause) => cause.label === label));
  const shares = found[0][1].map((_, bin) => found.map(([, values]) => values[bin]));
  return [{ name: `${name} idle`, title: "why idle", size: 0, states, levels: [{ seconds: idle.seconds, from: idle.from, shares }] }];
}

/** Columns of segments by member. @param {any} chunk @returns {import("../draw/lanes.js").Chunk} */
function tracks(chunk) {
  return Object.fromEntries(Object.entries(chunk.populations).map(([name, columns]) => {
    /** @type {Map<number, import("../draw/lanes.js").Track>} */
    const members = new Map();
    columns.member.forEach((member, n) => {
      let track = members.get(member);
      if (!track) members.set(member, track = { state: [], start: [], end: [], attempt: [] });
      for (const key of /** @type {const} */ (["state", "start", "end", "attempt"])) track[key].push(columns[key][n]);
    });
    return [name, members];
  }));
}
