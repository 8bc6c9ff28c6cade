// Arms of a comparison beside each other: curves with bands, paired differences, a ranking with its verdict.

import { h, number, table } from "../dom.js";
import { interval } from "../draw/bars.js";
import { linesFigure, PALETTE } from "../draw/lines.js";
import { get } from "../source.js";
import { encoded, viewLink } from "../state.js";

export async function study() {
  const document = await get("study");
  if (!document) return h("p.muted", {}, "This page holds no study.");
  const colors = new Map(document.arms.map((arm, k) => [arm.name, PALETTE[k % PALETTE.length]]));
  const figures = [...new Set(document.arms.flatMap((arm) => Object.keys(arm.lines ?? {})))];
  return h("section.stack", {},
    h("div.panel.head", {}, h("h1", {}, document.title), document.verdict && h("p.verdict", {}, document.verdict),
      h("p.legend", {}, ...[...colors].map(([name, color]) => h("span.state", {}, h("i", { style: { background: color } }), name)))),
    document.ranking.length > 0 && panel("Ranking", ranking(document.ranking, colors)),
    document.differences.rows.length > 0 && panel(document.differences.title, paired(document.differences, colors)),
    h("div.grid", {}, ...figures.map((figure) => linesFigure({ title: figure, over: document.arms.find((arm) => arm.lines?.[figure]).lines[figure].over ?? "hours",
      lines: document.arms.filter((arm) => arm.lines?.[figure]).map((arm) => ({ name: arm.name, color: colors.get(arm.name), ...arm.lines[figure] })), size: 200 }))),
    ...document.tables.map((each) => panel(each.title, table(each.title, each.heads, each.rows.map((row) =>
      row.map((cell) => typeof cell === "number" ? number(cell) : cell === null ? "–" : String(cell)))))),
    ...document.notes.map((note) => h("p.muted", {}, note)),
    document.runs.length > 0 && h("p", {}, "Runs: ", ...document.runs.flatMap((run) => [h("a", { href: viewLink(encoded(run), "now") }, run), " "])));
}

/** @param {string} title @param {HTMLElement} content */
const panel = (title, content) => h("div.panel", {}, h("b", {}, title), content);

/** @param {any[]} rows @param {Map<any, string>} colors */
function ranking(rows, colors) {
  const scale = /** @type {[number, number]} */ ([Math.min(0, ...rows.map((row) => row.low ?? row.score)), Math.max(...rows.map((row) => row.high ?? row.score))]);
  return table("Ranking", ["#", "arm", "#score", "", "verdict"], rows.map((row) => [String(row.rank ?? "–"), row.arm, number(row.score),
    interval(row.low ?? row.score, row.score, row.high ?? row.score, scale, colors.get(row.arm) ?? "currentColor"), row.verdict ?? ""]));
}

/** @param {{title: string, rows: any[]}} found @param {Map<any, string>} colors */
function paired({ title, rows }, colors) {
  return table(title, ["figure", "arm", "#difference", "", "#interval"], rows.map((row) => {
    const most = Math.max(...rows.filter((other) => other.figure === row.figure).flatMap((other) => [Math.abs(other.low), Math.abs(other.high)])) || 1;
    return [row.figure, `${row.arm} − ${row.against}`, `${number(row.difference)} ${row.unit ?? ""}`, interval(row.low, row.difference, row.high, [-most, most], colors.get(row.arm) ?? "currentColor"),
      `${number(row.low)} to ${number(row.high)}`];
  }));
}
