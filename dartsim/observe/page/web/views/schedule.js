// When each desktop, engine and the trainer did what, from days to one request.

import { clock, h, morph, number, percent, swatch } from "../dom.js";
import { lanesPlot } from "../draw/lanes.js";
import { get } from "../source.js";
import { current, note, viewLink } from "../state.js";

/** @type {number | undefined} */
let noting;

/** @param {string[]} runs */
export async function schedule(runs) {
  const found = await Promise.all(runs.map(async (run) =>
    ({ run, lanes: await get(`${run}/lanes`), states: await get(`${run}/states`), idle: (await get(`${run}/now`))?.idle })));
  const drawn = found.filter(({ lanes }) => lanes?.populations.length);
  if (!drawn.length) return h("p.muted", {}, "No schedule was recorded yet.");
  return h("section.stack", {},
    h("div.bar-row", {}, h("span.muted", {}, "Wheel or pinch zooms, dragging moves, a click opens an attempt."),
      h("form", { onsubmit: jump }, h("label.field", {}, "Go to", h("input", { name: "at", placeholder: "03:12", size: 8 })))),
    ...drawn.map(({ run, lanes, states, idle }) => h("figure.panel", {},
      runs.length > 1 && h("figcaption", {}, h("b", {}, decodeURIComponent(run))), lanesPlot(data(run, lanes, states, idle)),
      inView(run, lanes, states, viewed() ?? [0, lanes.to]))),
    h("div.panel", {}, ...Object.entries(drawn[0].states.populations).map(([name, { title, states }]) =>
      h("p.legend", {}, h("b", {}, title), ...states.filter((_, k) => drawn.some(({ lanes }) => occurs(lanes, name, k))).map(swatch))),
      h("p.legend.muted", {}, "Above the lanes: v7 is the update that made version 7; red marks are faults, amber alarms, orange weight syncs. " +
        "Below desktops, engines and trainer: why they were idle, where single stays are kept.")));
}

/** Whether a population was ever in a state. @param {any} lanes @param {string} name @param {number} state */
const occurs = (lanes, name, state) =>
  lanes.populations.find((population) => population.name === name)?.levels.at(-1)?.shares.some((bin) => bin[state] > 0);

/** Show the minutes around a time of the run. @param {SubmitEvent} event */
function jump(event) {
  event.preventDefault();
  const text = /** @type {any} */ (event.target).elements.at.value, parts = text.split(":").map(Number);
  const at = parts.reduce((sum, part, k) => sum + part * 60 ** (2 - k), 0);
  const plot = /** @type {any} */ (document.querySelector("lanes-plot"));
  if (text && Number.isFinite(at)) plot.show(at - 150, at + 150);
}

/** What the plot draws of a run's documents. @param {string} run @param {any} lanes @param {any} states @param {any} idle
 * @returns {import("../draw/lanes.js").Lanes} */
function data(run, lanes, states, idle) {
  return {
    ...lanes,
    from: 0,
    name: decodeURIComponent(run),
    view: viewed(),
    populations: lanes.populations.flatMap((population) => [{ ...population, ...states.populations[population.name] },
      ...why(population.name, idle, states.causes)]),
    marks: marks(lanes),
    load: async (id) => tracks(await get(`${run}/lanes/${id}`)),
    attempt: (attempt) => viewLink(run, "player", { attempt: String(attempt) }),
    moved: (view) => {
      clearTimeout(noting);
      noting = setTimeout(() => {
        if (current().view !== "schedule") return;
        note({ from: view[0].toFixed(2), to: view[1].toFixed(2) });
        const shown = document.getElementById(`view-${run}`);
        if (shown) morph(shown, inView(run, lanes, states, view));
      }, 200);
    },
  };
}

/** The stretch of time that the address names. @returns {[number, number] | null} */
const viewed = () => current().from && current().to ? [Number(current().from), Number(current().to)] : null;

/** Updates, weight syncs, alarms and ends of masked attempts, in order. @param {any} lanes
 * @returns {import("../draw/lanes.js").Mark[]} */
const marks = (lanes) => [
  ...lanes.marks.map(({ seconds, kind, label }) => ({ time: seconds, kind, label: label.replace(/^update /, "v") })),
  ...Object.entries(lanes.faults).flatMap(([label, times]) => times.map((time) => ({ time, kind: "fault", label }))),
].sort((a, b) => a.time - b.time);

/** What happened in the stretch of time that is in view, in words. @param {string} run @param {any} lanes @param {any} states
 * @param {[number, number]} view */
function inView(run, lanes, states, [from, to]) {
  const faults = Object.entries(lanes.faults).map(([label, times]) => ({ label, count: times.filter((time) => time >= from && time <= to).length }))
    .filter(({ count }) => count).sort((a, b) => b.count - a.count);
  const others = lanes.marks.filter(({ seconds, kind }) => seconds >= from && seconds <= to && kind !== "sync").map(({ label }) => label);
  const spent = lanes.populations.flatMap(({ name, levels }) => unusual(states.populations[name], levels.at(-1), from, to));
  const sum = faults.reduce((total, { count }) => total + count, 0);
  return h("div.legend.view", { id: `view-${run}`, role: "status" }, h("b", {}, `In view, ${clock(from)} to ${clock(to)}:`),
    ...spent.map(({ title, state, share, usual }) => h("span", {}, `${title} `, swatch(state), ` ${percent(share)} `, h("small", {}, `of the time, ${percent(usual)} in the whole run`))),
    h("span", {}, others.length > 4 ? `${others[0]} to ${others.at(-1)}` : others.join(", ")),
    h("span", {}, lanes.faults_from > from && `${clock(lanes.faults_from)} and later: `, sum ? `${number(sum)} masked attempts: ${faults.slice(0, 4).map(({ label, count }) => `${label} ${count}`).join(", ")}${faults.length > 4 ? ", …" : ""}` : "no masked attempt"),
    h("a", { href: viewLink(run, "attempts", { since: from.toFixed(0), until: to.toFixed(0) }) }, "attempts that ended then"));
}

/** The two states whose share differs most from that in the whole run. @param {any} population @param {any} level
 * @param {number} from @param {number} to */
function unusual({ title, states }, level, from, to) {
  if (!level) return [];
  const first = Math.max(0, Math.floor((from - level.from) / level.seconds)), here = level.shares.slice(first, Math.ceil((to - level.from) / level.seconds));
  const mean = (bins, k) => bins.reduce((sum, bin) => sum + bin[k], 0) / (bins.length || 1);
  const found = states.map((state, k) => ({ title, state, share: mean(here, k), usual: mean(level.shares, k) }));
  return found.filter(({ share, usual }) => here.length && Math.abs(share - usual) > 0.03)
    .sort((a, b) => Math.abs(b.share - b.usual) - Math.abs(a.share - a.usual)).slice(0, 2);
}

/** A band with the causes for which a population was idle, where they are known. @param {string} name @param {any} idle
 * @param {any[]} causes @returns {import("../draw/lanes.js").Population[]} */
function why(name, idle, causes) {
  const found = idle?.populations[name].shares ?? {}, states = causes.filter(({ label }) => found[label]);
  if (!states.length) return [];
  const shares = found[states[0].label].map((_, bin) => states.map(({ label }) => found[label][bin])), from = idle.start_seconds;
  return [{ name: `${name} idle`, title: "why idle", size: 0, states, levels: [{ seconds: (idle.end_seconds - from) / shares.length, from, shares }] }];
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
