// Is it learning? Every curve over hours, versions or samples, runs over one another.

import { h, number, percent, swatch, tabs } from "../dom.js";
import { linesFigure, PALETTE } from "../draw/lines.js";
import { get } from "../source.js";
import { current, link } from "../state.js";

/** What an update tells: its column, title, what the values are, and how they read.
 * @type {[string, string, string, ((value: number | null | undefined) => string)?][]} */
const UPDATES = [
  ["reward", "Reward of the batch", "attempts trained on"],
  ["loss", "Loss", ""],
  ["entropy", "Entropy", "nats per token"],
  ["kl", "KL from the sampling policy", "nats per token"],
  ["kl_reference", "KL from the reference", "nats per token"],
  ["clipped_share", "Clipped", "share of tokens", percent],
  ["effective_sample_size", "Effective sample size", "share of the batch", percent],
  ["gradient_norm", "Gradient norm", "before clipping"],
  ["reply_tokens", "Reply length", "tokens"],
  ["staleness", "Staleness", "versions, mean of the batch"],
  ["masked_share", "Masked", "share of tokens", percent],
  ["turns", "Turns per update", "turns"],
  ["turns_per_minute", "Trained turns per minute", "from update to update"],
];
const OVER = /** @type {Record<string, string>} */ ({ seconds: "hours", version: "versions", samples: "trained turns" });
const USED = [["env_utilization", "Desktops used"], ["gpu_utilization", "Engines used"]];

/** @param {string[]} runs */
export async function learning(runs) {
  const found = await Promise.all(runs.map(async (run) => ({ run: decodeURIComponent(run), series: await get(`${run}/series`) })));
  const drawn = found.filter(({ series }) => series), over = OVER[current().over] ? current().over : "seconds";
  if (!drawn.length) return h("p.muted", {}, "No figures were written yet.");
  const lines = (/** @type {(series: any) => any} */ columns, /** @type {string} */ key) => drawn.flatMap(({ run, series }, k) => {
    const found = columns(series), y = found?.[key];
    if (!y?.some((value) => value !== null) || !found[over]) return [];
    const x = over === "seconds" ? found.seconds.map((value) => value / 3600) : found[over];
    return [{ name: run, color: PALETTE[k % PALETTE.length], x, y, low: found.low, high: found.high, dots: key === "rate" }];
  });
  const figure = (title, note, lines, show = number) => lines.length > 0 &&
    linesFigure({ title, over: OVER[over], lines, show, floor: show === percent ? 0 : undefined }, note);
  const figures = [
    figure("Success on held-out tasks", "95 % intervals", lines((series) => series.success, "rate"), percent),
    figure("Reward of all attempts", "masked ones apart; 95 %", lines((series) => series.played, "rate")),
    ...UPDATES.map(([key, title, note, show]) => figure(title, note, lines((series) => series.updates, key), show)),
    ...drawn.map(({ run, series }) => difficulty(drawn.length > 1 ? `: ${run}` : "", series.difficulty, over)),
    figure("Generated turns per minute", "", lines(({ seconds, rates }) => ({ seconds, ...rates }), "generated_turns_per_minute")),
    ...USED.map(([key, title]) => figure(title, "share of the time", lines(({ seconds, utilization }) => ({ seconds, ...utilization }), key), percent)),
  ].filter(Boolean);
  return h("section.stack", {},
    h("div.bar-row", {},
      tabs("Over", Object.entries(OVER).map(([key, name]) => [`over ${name}`, link({ over: key }), key === over])),
      drawn.length > 1 && h("p.legend", {}, ...drawn.map(({ run }, k) =>
        h("span.state", {}, h("i", { style: { background: PALETTE[k % PALETTE.length] } }), run)))),
    figures.length ? h("div.grid", {}, ...figures) : h("p.muted", {}, "Nothing was trained yet."));
}

/** What share of the trained groups was of hard, middling and easy tasks. @param {string} whose @param {any} found
 * @param {string} over */
function difficulty(whose, found, over) {
  if (!found?.version?.length || !found[over]) return null;
  const x = over === "seconds" ? found.seconds.map((value) => value / 3600) : found[over];
  const lines = ["hard", "middle", "easy"].map((name, k) => ({ name, color: PALETTE[[1, 3, 2][k]], x, y: found[name] }));
  return linesFigure({ title: `Trained by difficulty${whose}`, over: OVER[over], lines, show: percent, floor: 0 },
    h("span.legend", {}, ...lines.map(({ name, color }) => swatch({ label: name, color }))));
}
