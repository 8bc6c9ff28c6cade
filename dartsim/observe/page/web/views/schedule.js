// When each desktop, engine and the trainer did what, from days to one request.

import { h, swatch } from "../dom.js";
import { get } from "../source.js";
import { current, note, viewLink } from "../state.js";
import "../draw/lanes.js";

/** @type {number | undefined} */
let noting;

/** @param {string[]} runs */
export async function schedule(runs) {
  const found = await Promise.all(runs.map(async (run) => ({ run, lanes: await get(`${run}/lanes`), states: await get(`${run}/states`) })));
  const drawn = found.filter(({ lanes }) => lanes);
  if (!drawn.length) return h("p.muted", {}, "No schedule was recorded yet.");
  const { from, to } = current();
  const view = from && to ? [Number(from), Number(to)] : null;
  const moved = (range) => {
    clearTimeout(noting);
    noting = setTimeout(() => note({ from: range[0].toFixed(2), to: range[1].toFixed(2) }), 200);
  };
  const states = drawn[0].states.populations;
  return h("section.stack", {},
    h("div.bar-row", {}, h("span.muted", {}, "Wheel or pinch zooms, dragging moves, a click opens an attempt."),
      h("form.field", { onsubmit: (event) => { event.preventDefault(); jump(/** @type {any} */ (event.target).elements.at.value); } },
        h("label.field", {}, "Go to", h("input", { name: "at", placeholder: "03:12", size: 8 })))),
    ...drawn.map(({ run, lanes, states }) => h("figure.panel", {}, runs.length > 1 && h("figcaption", {}, h("b", {}, run)),
      h("lanes-plot", { data: data(run, lanes, states, view, moved) }))),
    h("div.panel", {}, h("h2", {}, "Colors"), ...Object.entries(states).map(([, population]) =>
      h("p.legend", {}, h("b", {}, population.title), ...population.states.map(swatch)))));
}

/** Show the minutes around a time of day of the run. @param {string} text hours:minutes[:seconds] */
function jump(text) {
  const parts = text.split(":").map(Number);
  if (parts.some(Number.isNaN)) return;
  const at = parts.reduce((sum, part, k) => sum + part * 60 ** (2 - k), 0);
  const plot = /** @type {any} */ (document.querySelector("lanes-plot"));
  plot.show(at - 150, at + 150);
}

/** What the plot draws of a run's documents. @param {string} run @param {any} lanes @param {any} states
 * @param {number[] | null} view @param {(range: [number, number]) => void} moved */
const data = (run, lanes, states, view, moved) => ({
  ...lanes, name: run, view, moved, attempt: (attempt) => viewLink(run, "player", { attempt: String(attempt) }), load: async (k) => tracks(await get(`${run}/lanes/${k}`)),
  populations: lanes.populations.map((population) => ({ ...population, ...states.populations[population.name] })),
  marks: lanes.marks.map((mark) => ({ ...mark, time: mark.seconds })),
});

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
