// Which attempts there were, by what became of them, and the attempts of a group side by side.

import { clock, h, number, percent, select, table } from "../dom.js";
import { shareBar } from "../draw/bars.js";
import { PALETTE } from "../draw/lines.js";
import { get } from "../source.js";
import { current, go, link, viewLink } from "../state.js";

/** What can be filtered: column and label. @type {[string, string][]} */
const FILTERS = [["task", "Task"], ["ending", "Outcome"], ["reward", "Reward"], ["version", "Version"],
  ["staleness", "Staleness"], ["cause", "Masked, why"], ["state", "Trained or dropped"], ["reason", "Dropped, why"]];
/** @type {[string, string][]} */
const ORDERS = [["attempt", "newest"], ["reward", "reward"], ["num_turns", "turns"], ["staleness", "staleness"]];
const HEADS = ["#attempt", "task", "#group", "#version", "#staleness", "#turns", "outcome", "#reward", "became", "#update", "#started"];
const PAGE = 100;
/** @type {Record<string, string>} */
const WHY_FAILED = { done: "it said it was done", turn_limit: "out of turns" };
/** Colors of failures: the palette without the green of success. */
const FAILED = PALETTE.filter((_, k) => k !== 2);

/** @param {string[]} runs */
export async function attempts([run]) {
  const columns = await get(`${run}/attempts`), state = current();
  if (!columns?.attempt.length) return h("p.muted", {}, "No attempt has ended yet.");
  if (state.group) return group(run, columns, Number(state.group));
  const wanted = FILTERS.filter(([key]) => state[key] !== undefined), order = state.sort ?? "attempt";
  const ended = (row) => !state.until || columns.finished[row] >= Number(state.since) && columns.finished[row] <= Number(state.until);
  const rows = [...columns.attempt.keys()].filter((row) => ended(row) && wanted.every(([key]) => text(columns[key][row]) === state[key]));
  rows.sort((a, b) => (columns[order][b] ?? -Infinity) - (columns[order][a] ?? -Infinity) || columns.attempt[b] - columns.attempt[a]);
  const shown = rows.slice(0, Number(state.rows ?? PAGE)), rewards = rows.map((row) => columns.reward[row]).filter((one) => one !== null);
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  return h("section.stack", {},
    h("form.filters.panel", {},
      ...FILTERS.map(([key, label]) => select(label, choices(columns[key]), state[key] ?? "*",
        (value) => go({ [key]: value === "*" ? "" : value, rows: "" }))),
      select("Sort by", ORDERS, order, (value) => go({ sort: value }))),
    h("p", { role: "status" }, `${number(rows.length)} of ${number(columns.total)} attempts`,
      rewards.length > 0 && `, mean reward ${number(mean)}`,
      columns.total > columns.attempt.length && ` (the newest ${number(columns.attempt.length)} are listed)`,
      state.until && `, which ended from ${clock(Number(state.since))} to ${clock(Number(state.until))}`,
      (wanted.length > 0 || state.until) && [" · ", h("a", { href: viewLink(run, "attempts") }, "show all")]),
    rows.length > 0 && h("div.panel.columns", {}, outcomes(columns, rows), failed(columns, rows)),
    h("div.panel", {}, table("Attempts", HEADS, shown.map((row) => cells(run, columns, row)))),
    shown.length < rows.length && h("a.button", { href: link({ rows: String(shown.length + 10 * PAGE) }) }, "Show more"));
}

/** How often each value occurs, the most frequent first. @param {any[]} values @returns {[any, number][]} */
function counted(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

/** How attempts ended: those that succeeded, and why the others did not. @param {any} columns @param {number[]} rows */
function outcomes({ ending, cause, reward }, rows) {
  const kinds = counted(rows.map((row) => reward[row] === null ? `masked: ${cause[row] ?? ending[row]}` :
    reward[row] > 0.5 ? "succeeded" : `failed: ${WHY_FAILED[ending[row]] ?? ending[row]}`));
  const shown = kinds.slice(0, 7), rest = kinds.slice(7).reduce((sum, [, count]) => sum + count, 0);
  if (rest) shown.push(["others", rest]);
  return shareBar("How they ended", shown.map(([label, count], k) => ({ label, share: count / rows.length,
    color: label === "succeeded" ? "var(--good)" : FAILED[k % FAILED.length], note: `${number(count)} (${percent(count / rows.length)})` })), number(rows.length));
}

/** The tasks that failed most often. @param {any} columns @param {number[]} rows */
function failed({ task, reward }, rows) {
  const scored = rows.filter((row) => reward[row] !== null), tried = new Map(counted(scored.map((row) => task[row])));
  const most = counted(scored.filter((row) => reward[row] <= 0.5).map((row) => task[row])).slice(0, 5);
  return most.length > 0 && h("div", {}, h("b", {}, "Tasks that failed most often"), table("Tasks that failed most often", ["task", "#failed", "#of"],
    most.map(([name, count]) => [h("a", { href: link({ task: name, rows: "" }) }, name), number(count), number(tried.get(name))])));
}

/** @param {any} value */
const text = (value) => value === null ? "" : String(value);

/** The values of a column with how often each occurs. @param {any[]} values @returns {[string, string][]} */
function choices(values) {
  const sorted = counted(values.map(text)).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).slice(0, 1000);
  return [["*", "any"], ...sorted.map(([value, count]) => /** @type {[string, string]} */ ([value, `${value || "none"} (${count})`]))];
}

/** @param {string} run @param {any} columns @param {number} row */
function cells(run, columns, row) {
  const of = (/** @type {string} */ key) => columns[key][row], aside = (value) => value && h("span.muted", {}, ` ${value}`);
  return [
    h("a", { href: viewLink(run, "player", { attempt: of("attempt") }), class: of("has_turns") ? null : "muted",
      title: of("has_turns") ? null : "its turns are not kept" }, of("attempt")),
    of("task"), h("a", { href: viewLink(run, "attempts", { group: of("group") }), title: "side by side" }, text(of("group"))),
    text(of("version")), text(of("staleness")), text(of("num_turns")), [of("ending") ?? "", aside(of("cause"))],
    of("reward") === null ? "" : number(of("reward")), [of("state") ?? "", aside(of("reason"))], text(of("update")), clock(of("started")),
  ];
}

/** The rows of a group. @param {any} columns @param {number} group */
export const groupRows = (columns, group) => [...columns.group.keys()].filter((row) => columns.group[row] === group)
  .sort((a, b) => columns.attempt[a] - columns.attempt[b]);

/** The attempts of a group beside each other. @param {string} run @param {any} columns @param {number} id */
async function group(run, columns, id) {
  const rows = groupRows(columns, id), played = await playable(run, columns, rows), best = played[0];
  return h("section.stack", {},
    h("h1", {}, `Group ${id}: ${columns.task[rows[0]] ?? "there is none"}`),
    best && h("p", {}, best.instruction),
    h("div.panel", {}, table("Attempts of the group", HEADS, rows.map((row) => cells(run, columns, row)))),
    best ? h("div.side", { tabindex: 0, role: "region", "aria-label": "Turns side by side" },
      ...played.map((attempt) => column(run, attempt, best)))
      : h("p.muted", {}, "Their turns were not kept."));
}

/** The first turn in which an attempt did something else than another; -1 if there is none. @param {any[]} turns
 * @param {any[]} others */
export const parting = (turns, others) => turns.findIndex((turn, k) => turn.action !== others[k]?.action);

/** Those attempts of a group whose turns are kept, the best first. @param {string} run @param {any} columns
 * @param {number[]} rows @returns {Promise<any[]>} */
export const playable = async (run, columns, rows) => (await Promise.all(rows.filter((row) => columns.has_turns[row])
  .map((row) => get(`${run}/attempt/${columns.attempt[row]}`)))).filter(Boolean).sort((a, b) => (b.reward ?? -1) - (a.reward ?? -1));

/** An attempt's actions; the first that the best attempt did not take is marked. @param {string} run @param {any} played
 * @param {any} best */
function column(run, { attempt, reward, ending, turns }, best) {
  const parts = parting(turns, best.turns);
  return h("div.panel", {}, h("h2", {}, `Attempt ${attempt}: ${reward === null ? ending : number(reward)}`),
    h("ol.turns", {}, ...turns.map((turn, k) => h("li", { class: k === parts ? "parts" : turn.kept === false ? "cut" : null },
      h("a", { href: viewLink(run, "player", { attempt, turn: String(k) }) }, turn.action || "no action"),
      k === parts && h("span.muted", {}, ` unlike attempt ${best.attempt}`)))));
}
