// Is it fine? What limits the run, what is wrong, whether it learns, and what every component does, on one screen.

import { clock, duration, h, number, percent, swatch, table } from "../dom.js";
import { shareBar } from "../draw/bars.js";
import { linesFigure, PALETTE } from "../draw/lines.js";
import { get } from "../source.js";
import { viewLink } from "../state.js";

/** How each state of a run is shown. @type {Record<string, string>} */
const STATES = { running: "good", finished: "good", starting: "plain", silent: "warn", interrupted: "warn" };

/** A run's state as a badge. @param {string} state */
export const badge = (state) => h(`span.badge.${STATES[state] ?? "bad"}`, {}, state);

/** A stretch of the schedule around a moment. @param {number} seconds */
export const around = (seconds) => ({ from: String(Math.max(0, seconds - 150)), to: String(seconds + 150) });

/** @param {string[]} runs */
export async function now(runs) {
  return h("div.stack", {}, ...await Promise.all(runs.map(async (run) => {
    const [found, states, series] = await Promise.all(["now", "states", "series"].map((name) => get(`${run}/${name}`)));
    return found ? one(run, found, states, series) : h("p.muted", {}, `${run} has written nothing yet.`);
  })));
}

/** @param {string} run @param {any} found @param {any} states @param {any} series */
function one(run, found, states, series) {
  const { name, state, clock: kind, run_seconds: done, of_seconds: whole, progress, eta_seconds: rest } = found;
  return h("section.stack", {},
    h("div.panel.head", {},
      h("h1", {}, name, " ", badge(state), " ", h("small", {}, `${found.scheduler && found.scheduler !== name ? `${found.scheduler}, ` : ""}seed ${found.seed ?? "–"}`)),
      found.error && h("p.error", { role: "alert" }, found.error),
      found.verdict && found.verdict !== found.error && h("p.verdict", {}, found.verdict),
      h("div.progress", {},
        h("progress", { max: 1, value: progress ?? 0, "aria-label": "Part of the run that is done" }),
        h("span", {}, `${percent(progress)}: ${clock(done)}${whole && state !== "finished" ? ` of ${clock(whole)}` : ""} of ${kind} time`,
          state === "running" && rest ? `, ends in about ${duration(rest)}${found.target_success ? `, or once ${percent(found.target_success)} of held-out tasks succeed` : ""}` : "")),
      h("dl.counts", {}, ...counts(found, series).map(([label, value]) =>
        h("div", {}, h("dt", {}, label), h("dd", {}, value))))),
    alarms(run, found.alarms),
    h("div.columns", {},
      h("div.panel.stack", {}, h("h2", {}, state === "running" ? "What they do now" : "What they did at last"),
        ...Object.entries(states.populations).map(([key, members]) => does(members, found.waiting.filter((wait) => wait.population === key)))),
      found.idle && idle(found.idle, states),
      curves(series, found.surrogate)),
    found.waiting.length > 0 && h("div.panel", {}, h("h2", {}, "What they wait for"), waits(found, states)));
}

/** The figures that tell most. @param {any} found @param {any} series @returns {[string, string][]} */
function counts(found, series) {
  const last = (/** @type {any[] | undefined} */ values) => values?.findLast((value) => value !== null);
  const by = found.counts, { success, updates, utilization } = series ?? {}, rate = last(success?.rate);
  const share = (count) => by.trajectories ? `${number(count ?? 0)} (${percent((count ?? 0) / by.trajectories)})` : undefined;
  /** @type {[string, string | undefined][]} */
  const all = [
    ["success on held-out tasks", rate === undefined ? undefined : `${percent(rate)} (${percent(last(success.low))} to ${percent(last(success.high))})`],
    ["trained turns/min", number(found.figures.trained_turns_per_minute ?? last(updates?.turns_per_minute))],
    ["desktops used", percent(found.figures.env_utilization ?? last(utilization?.env_utilization))],
    ["engines used", percent(found.figures.gpu_utilization ?? last(utilization?.gpu_utilization))],
    ["updates", number(by.updates ?? 0)],
    ["attempts", number(by.trajectories ?? 0)],
    ["trained on", share(by.trained_trajectories)],
    ["masked by faults", share(Math.max(0, (by["dropped/masked"] ?? 0) - (by["ending/cancelled"] ?? 0)))],
    ["alarms", found.alarms.length ? `${found.alarms.filter((alarm) => alarm.active).length} active of ${found.alarms.length}` : "none"],
  ];
  return /** @type {[string, string][]} */ (all.filter(([, value]) => value !== undefined && value !== "–"));
}

/** @param {string} run @param {any[]} alarms */
function alarms(run, alarms) {
  const rows = [...alarms].sort((a, b) => Number(b.active) - Number(a.active) || b.since_seconds - a.since_seconds);
  if (!rows.length) return null;
  return h("div.panel", {}, h("h2", {}, "Alarms"), table("Alarms", ["#at", "", "what", "likely", "do"], rows.map((alarm) => [
    h("a", { href: viewLink(run, "schedule", around(alarm.since_seconds)) }, clock(alarm.since_seconds)),
    h(`span.badge.${alarm.active ? "bad" : "plain"}`, {}, alarm.active ? "active" : "over"),
    brief(alarm.found), alarm.likely, alarm.todo])));
}

/** A long message's first part, with the rest behind a click. @param {string} message */
function brief(message) {
  const end = message.indexOf("; ", 40);
  return message.length < 200 || end < 0 ? message : h("details", {}, h("summary", {}, message.slice(0, end)), message.slice(end + 2));
}

/** How many members are in which state. @param {any} members @param {any[]} waiting */
function does({ title, states }, waiting) {
  const size = waiting.reduce((sum, { count }) => sum + count, 0), counts = new Map(waiting.map(({ state, count }) => [state, count]));
  return shareBar(title, states.map((state) => ({ ...state, share: (counts.get(state.label) ?? 0) / size, note: number(counts.get(state.label)) })), size);
}

/** @param {any} found @param {any} states */
const idle = ({ start_seconds: start, end_seconds: end, populations }, states) => h("div.panel.stack", {},
  h("h2", {}, `Where their time went, ${clock(start)} to ${clock(end)}`), ...Object.entries(populations).map(([key, { size, seconds }]) => {
    const share = (cause) => (seconds[cause] ?? 0) / (size * (end - start)), work = share(states.at_work);
    const parts = states.causes.map((cause) => ({ ...cause, share: share(cause.label) }));
    parts.push({ label: states.at_work, color: "var(--border)", share: work });
    return shareBar(states.populations[key].title, parts.filter((part) => part.share >= 0.0005), `${percent(work)} at work; the rest because of`);
  }));

/** Whether it learns, by whether the intervals of the first and the last figure overlap. @param {any} success */
function learns({ rate, low, high }) {
  const last = rate.length - 1, [before, after] = [0, last].map((k) => `${percent(rate[k])} (${percent(low[k])} to ${percent(high[k])})`);
  if (low[0] === null) return null;
  const [word, sign] = low[last] > high[0] ? ["yes", "good"] : high[last] < low[0] ? ["no", "bad"] : ["not shown yet", "plain"];
  return h("p", {}, h(`span.badge.${sign}`, {}, word), ` it went from ${before} to ${after}`);
}

/** Success or reward, and the rate, in small. @param {any} series @param {boolean} surrogate */
function curves(series, surrogate) {
  const { success, updates, played } = series ?? {}, drawn = [];
  const [title, learning] = success?.rate?.length ? ["Success on held-out tasks", success] : ["Reward of all attempts", played];
  if (learning?.rate.length) drawn.push({ title, ...learning, y: learning.rate, dots: true });
  if (updates?.turns_per_minute?.length) drawn.push({ title: "Trained turns per minute", seconds: updates.seconds, y: updates.turns_per_minute });
  return drawn.length > 0 && h("div.panel.stack", {}, h("h2", {}, "Is it learning?"), learning.rate.length > 1 && !surrogate && learns(learning),
    surrogate && h("p", {}, h("span.badge.plain", {}, "no model"), " outcomes are drawn: nothing is learned"),
    ...drawn.map(({ title, seconds, y, low, high, dots }) => linesFigure({ title, over: "hours", floor: 0, size: 110,
      lines: [{ name: title, color: PALETTE[0], x: seconds.map((value) => value / 3600), y, low, high, dots }], show: dots ? percent : number })));
}

/** @param {any} found @param {any} states */
const waits = (found, states) => table("Waits", ["who", "#how many", "waits for", "until", "longest", "#for"], found.waiting.map((wait) => {
  const members = states.populations[wait.population], state = members?.states.find(({ label }) => label === wait.state);
  return [[`${members?.title ?? wait.kind}: `, state ? swatch(state) : wait.state], number(wait.count), wait.waits_for, wait.woken_by,
    [wait.component, wait.detail && h("span.muted", {}, ` ${wait.detail}`)], duration(Math.max(0, found.as_of_seconds - wait.since_seconds))];
}));
