// Which attempts there were, by what became of them, and the attempts of a group side by side.

import { clock, h, number, select, table } from "../dom.js";
import { get } from "../source.js";
import { current, go, link, viewLink } from "../state.js";

/** What can be filtered: column and label. @type {[string, string][]} */
const FILTERS = [["task", "Task"], ["ending", "Outcome"], ["reward", "Reward"], ["version", "Version"], ["staleness", "Staleness"], ["cause", "Masked, why"],
  ["state", "Trained or dropped"], ["reason", "Dropped, why"]];
const PAGE = 100;

/** @param {string[]} runs */
export async function attempts([run]) {
  const [columns, state] = [await get(`${run}/attempts`), current()];
  if (!columns?.attempt.length) return h("p.muted", {}, "No attempt has ended yet.");
  if (state.group) return group(run, columns, Number(state.group));
  const wanted = FILTERS.filter(([key]) => state[key] !== undefined && columns[key]);
  const matching = columns.attempt.map((_, row) => row)
    .filter((row) => wanted.every(([key]) => text(columns, key, row) === state[key]));
  const order = state.sort ?? "attempt", rows = matching.sort((a, b) => compare(columns[order][b], columns[order][a]));
  const many = Number(state.rows ?? PAGE), shown = rows.slice(0, many);
  const rewards = rows.map((row) => columns.reward[row]).filter((reward) => reward !== null);
  return h("section.stack", {},
    h("form.filters.panel", {}, ...FILTERS.filter(([key]) => columns[key]).map(([key, label]) => select(label, choices(columns, key), state[key] ?? "*",
      (value) => go({ [key]: value === "*" ? "" : value, rows: "" }))),
      select("Sort by", [["attempt", "newest"], ["reward", "reward"], ["num_turns", "turns"], ["started", "start"]], order, (value) => go({ sort: value }))),
    h("p", { role: "status" }, `${number(rows.length)} of ${number(columns.attempt.length)} attempts`,
      rewards.length ? `, mean reward ${number(rewards.reduce((a, b) => a + b, 0) / rewards.length)}` : "", wanted.length > 0 && h("span", {}, " · ",
        h("a", { href: viewLink(run, "attempts") }, "all"))),
    h("div.panel", {}, table("Attempts", ["#attempt", "task", "#group", "#version", "#turns", "outcome", "#reward", "became", "#started"], shown.map((row) => cells(run, columns, row)))),
    shown.length < rows.length && h("a.button", { href: link({ rows: String(many + 10 * PAGE) }) }, `Show more of ${number(rows.length)}`));
}

/** @param {any} columns @param {string} key @param {number} row */
const text = (columns, key, row) => columns[key][row] === null ? "" : String(columns[key][row]);

/** @param {any} a @param {any} b */
const compare = (a, b) => a === b ? 0 : a === null ? -1 : b === null ? 1 : a < b ? -1 : 1;

/** The values of a column with how often each occurs. @param {any} columns @param {string} key @returns {[string, string][]} */
function choices(columns, key) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  columns[key].forEach((_, row) => { const value = text(columns, key, row); counts.set(value, (counts.get(value) ?? 0) + 1); });
  const sorted = [...counts].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  return [["*", "any"], ...sorted.slice(0, 1000).map(([value, count]) => /** @type {[string, string]} */ ([value, `${value || "none"} (${count})`]))];
}

/** @param {string} run @param {any} columns @param {number} row */
function cells(run, columns, row) {
  const of = (key) => columns[key]?.[row] ?? null, attempt = of("attempt");
  return [h("a", { href: viewLink(run, "player", { attempt }), class: of("has_turns") ? null : "muted" }, String(attempt)), of("task"),
    h("a", { href: viewLink(run, "attempts", { group: of("group") }), title: "side by side" }, text(columns, "group", row)), text(columns, "version", row), text(columns, "num_turns", row),
    [of("ending") ?? "running", of("cause") && h("span.muted", {}, ` ${of("cause")}`)], of("reward") === null ? "–" : number(of("reward")),
    [of("state"), of("reason") && h("span.muted", {}, ` ${of("reason")}`)], clock(of("started"))];
}

/** The rows of an attempt's group, in its order. @param {any} columns @param {number} number */
export const groupRows = (columns, number) => columns.group.map((_, row) => row)
  .filter((row) => columns.group[row] === number).sort((a, b) => columns.attempt[a] - columns.attempt[b]);

/** The attempts of a group beside each other: the first turn at which one leaves the best one is marked. @param {string} run @param {any} columns @param {number} number */
async function group(run, columns, number) {
  const rows = groupRows(columns, number);
  const played = await Promise.all(rows.map((row) => columns.has_turns[row] ? get(`${run}/attempt/${columns.attempt[row]}`) : null));
  const best = played.reduce((best, one) => one && (!best || (one.reward ?? -1) > (best.reward ?? -1)) ? one : best, null);
  return h("section.stack", {},
    h("h1", {}, `Group ${number}: ${columns.task[rows[0]] ?? ""}`),
    best && h("p", {}, best.instruction),
    h("div.panel", {}, table("Attempts of the group", ["#attempt", "task", "#group", "#version", "#turns", "outcome", "#reward", "became", "#started"], rows.map((row) => cells(run, columns, row)))),
    best ? h("div.side", {}, ...rows.map((row, k) => column(run, columns, row, played[k], best))) : h("p.muted", {}, "Their turns were not kept."));
}

/** @param {string} run @param {any} columns @param {number} row @param {any} played @param {any} best */
function column(run, columns, row, played, best) {
  const turns = played?.turns ?? [], parts = turns.findIndex((turn, k) => turn.action !== best.turns[k]?.action);
  return h("div.panel", {}, h("h2", {}, `Attempt ${columns.attempt[row]}: ${columns.reward[row] === null ? columns.ending[row] : number(columns.reward[row])}`),
    h("ol.turns", {}, ...turns.map((turn, k) => h("li", { class: k === parts ? "parts" : turn.kept === false ? "cut" : null },
      h("a", { href: viewLink(run, "player", { attempt: columns.attempt[row], turn: String(k) }) }, turn.action || "no action"),
      k === parts && h("span.muted", {}, ` leaves attempt ${best.attempt}`)))));
}
