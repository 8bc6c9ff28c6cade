// Is it learning? Every curve over hours, versions or samples, runs over one another.

import { h, percent, tabs } from "../dom.js";
import { linesFigure, PALETTE } from "../draw/lines.js";
import { get } from "../source.js";
import { current, link } from "../state.js";

/** Columns of the updates: key, title, what it says, whether it is a share. @type {[string, string, string, boolean?][]} */
const UPDATES = [
  ["reward", "Reward", "mean of the attempts trained on"],
  ["loss", "Loss", ""],
  ["entropy", "Entropy", "nats per token"],
  ["kl", "KL", "from the reference, nats per token"],
  ["clipped_share", "Clipped", "share of tokens", true],
  ["effective_sample_size", "Effective sample size", "share of the batch", true],
  ["gradient_norm", "Gradient norm", "before clipping"],
  ["reply_tokens", "Reply length", "tokens"],
  ["staleness", "Staleness", "versions, mean"],
];
const OVER = /** @type {Record<string, string>} */ ({ seconds: "hours", version: "versions", samples: "trained turns" });

/** @param {string[]} runs */
export async function learning(runs) {
  const found = await Promise.all(runs.map(async (run) => ({ run, series: await get(`${run}/series`) })));
  const drawn = found.filter(({ series }) => series), over = OVER[current().over] ? current().over : "seconds";
  if (!drawn.length) return h("p.muted", {}, "No figures were written yet.");
  const scaled = (values) => over === "seconds" ? values.map((value) => value / 3600) : values;
  /** @param {(series: any) => any} columns @param {string} key */
  const lines = (columns, key) => drawn.map(({ run, series }, k) => ({ run, table: columns(series), color: drawn.length > 1 ? PALETTE[k % PALETTE.length] : "#4477aa" }))
    .filter(({ table }) => table?.[key]?.some((value) => value !== null) && table[over])
    .map(({ run, table, color }) => ({ name: run, color, x: scaled(table[over]), y: table[key], low: table.low, high: table.high, dots: key === "rate" }));
  const figures = [
    figure("Success on held-out tasks", "95 % intervals", lines((series) => series.success, "rate"), over, true),
    ...UPDATES.map(([key, title, note, share]) => figure(title, note, lines((series) => series.updates, key), over, share)),
    difficulty(drawn),
  ].filter(Boolean);
  return h("section.stack", {},
    h("div.bar-row", {}, tabs("Over", Object.entries(OVER).map(([key, name]) => [`over ${name}`, link({ over: key }), key === over])),
      drawn.length > 1 && h("p.legend", {}, ...drawn.map(({ run }, k) => h("span.state", {}, h("i", { style: { background: PALETTE[k % PALETTE.length] } }), run)))),
    figures.length ? h("div.grid", {}, ...figures) : h("p.muted", {}, "Nothing was trained yet."));
}

/** @param {string} title @param {string} note @param {import("../draw/lines.js").Line[]} lines @param {string} over
 * @param {boolean} [share] */
const figure = (title, note, lines, over, share) => lines.length > 0 &&
  linesFigure({ title, over: OVER[over], lines, ...(share ? { show: percent, floor: 0 } : {}) }, note);

/** Which share of the attempts of easy, middling and hard tasks was trained on. @param {any[]} drawn */
function difficulty(drawn) {
  const lines = drawn.flatMap(({ run, series }) => Object.entries(series.difficulty ?? {}).filter(([key]) => key !== "seconds").map(([name, y], k) => ({
    name: drawn.length > 1 ? `${run}: ${name}` : name, color: PALETTE[k % PALETTE.length], x: series.difficulty.seconds.map((value) => value / 3600), y })));
  return lines.length > 0 && linesFigure({ title: "Trained share by difficulty", over: "hours", lines, show: percent, floor: 0 });
}
