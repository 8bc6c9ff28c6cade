// What the agent saw, thought and did, turn by turn.

import { clock, duration, h, number, percent, table } from "../dom.js";
import { get, screen } from "../source.js";
import { current, go, link, viewLink } from "../state.js";
import { groupRows } from "./attempts.js";
import { around } from "./now.js";

/** @param {string[]} runs */
export async function player([run]) {
  const state = current(), attempt = Number(state.attempt), columns = await get(`${run}/attempts`);
  const played = await get(`${run}/attempt/${attempt}`), row = columns?.attempt.indexOf(attempt) ?? -1;
  if (!played?.turns.length) {
    return h("p.muted", {}, row < 0 ? `There is no attempt ${state.attempt}.` : `The turns of attempt ${attempt} were not kept (the newest are). `,
      row >= 0 && h("a", { href: viewLink(run, "schedule", around(columns.started[row])) }, "See it on the schedule."));
  }
  const turns = played.turns, k = Math.max(0, Math.min(turns.length - 1, Number(state.turn ?? 0))), turn = turns[k];
  const others = row < 0 ? [] : groupRows(columns, columns.group[row]).map((row) => columns.attempt[row]);
  const to = (turn) => go({ turn: String(Math.max(0, Math.min(turns.length - 1, turn))) });
  const other = (step) => go({ attempt: String(others[(others.indexOf(attempt) + step + others.length) % others.length]), turn: String(k) });
  const keys = { ArrowLeft: () => to(k - 1), ArrowRight: () => to(k + 1), Home: () => to(0), End: () => to(turns.length - 1), "[": () => other(-1), "]": () => other(1),
    g: () => go({ view: "attempts", group: String(played.group) }) };
  const next = turns[k + 1]?.screen && screen(run, turns[k + 1].screen);
  if (next) new Image().src = next;
  return h("section.stack", { keys },
    h("div.panel.head", {}, h("h1", {}, `Attempt ${attempt}: ${played.task}`),
      h("p", {}, played.instruction),
      h("dl.counts", {}, ...[["reward", played.reward === null ? "–" : number(played.reward)], ["outcome", played.ending], ["became", [played.state, played.reason].filter(Boolean).join(", ")],
        ["version", played.version], ["desktop", played.slot]].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value ?? "–")))),
      h("div", {}, h("dt", {}, h("a", { href: viewLink(run, "attempts", { group: played.group }) }, `group ${played.group}`)), h("dd", {}, ...others.map((one) =>
        h("a.chip", { href: link({ attempt: String(one) }), "aria-current": one === attempt ? "true" : null }, String(one))))),
      h("div", {}, h("dt", {}, "started"), h("dd", {}, h("a", { href: viewLink(run, "schedule", around(turns[0].started)) }, clock(turns[0].started)))))),
    h("div.player", {},
      h("div.panel", {}, picture(run, turn),
        h("div.transport", {}, h("button", { type: "button", onclick: () => to(k - 1), disabled: k === 0, "aria-label": "Turn before" }, "←"),
          h("input", { type: "range", min: 0, max: turns.length - 1, value: String(k), "aria-label": "Turn", oninput: (event) => to(Number(event.target.value)) }),
          h("button", { type: "button", onclick: () => to(k + 1), disabled: k === turns.length - 1, "aria-label": "Turn after" }, "→"),
          h("span", { role: "status" }, `turn ${k + 1} of ${turns.length}`)),
        h("p.muted.keys", {}, h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " turns, ", h("kbd", {}, "["), " ", h("kbd", {}, "]"), " attempts of the group, ", h("kbd", {}, "g"), " side by side")),
      h("div.panel.stack", {}, h("h2", {}, turn.action || "no action"),
        h("dl.counts", {}, ...[["trained on", turn.kept === null || turn.kept === undefined ? "–" : turn.kept ? "yes" : "no"], ["advantage", number(turn.advantage)], ["version", turn.version ?? "–"],
          ["model", duration(turn.model_seconds)], ["desktop", duration(turn.desktop_seconds)]].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value))))),
        turn.thought && h("p.thought", {}, turn.thought), strip(turn),
        h("details", { open: !turn.tokens?.length }, h("summary", {}, "Raw reply"), h("pre", { tabindex: 0 }, turn.reply ?? "")))));
}

/** The screenshot with the action drawn on it; places are shares of the picture. @param {string} run @param {any} turn */
function picture(run, turn) {
  const source = turn.screen && screen(run, turn.screen), draw = turn.draw ?? {}, points = draw.points ?? [];
  const at = (/** @type {number[]} */ [x, y]) => ({ left: `${100 * x}%`, top: `${100 * y}%` });
  const words = [draw.keys?.join(" + "), draw.text && `“${draw.text}”`, draw.kind === "scroll" && `scroll ${draw.amount ?? ""}`].filter(Boolean).join(" ");
  return h("div.screen", { id: `screen-${run}` }, source ? h("img", { src: source, alt: `Screen before: ${turn.action}` }) : h("div.blank", {}, "No screenshot is kept of this turn."),
    ...points.map((/** @type {number[]} */ point, n) => h(`i.point.${draw.kind === "drag" && n ? "target" : draw.kind}`, { style: at(point) })),
    draw.kind === "drag" && points.length > 1 && line(points[0], points[points.length - 1]),
    words && h("span.typed", {}, words));
}

/** A line over the whole picture. @param {number[]} from @param {number[]} to */
function line(from, to) {
  const make = (tag, /** @type {Record<string, any>} */ attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    return element;
  };
  const svg = make("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(make("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], "vector-effect": "non-scaling-stroke" }));
  return svg;
}

/** How sure the model was of each token: surprise upwards, entropy downwards. @param {any} turn */
function strip(turn) {
  const { tokens = [], logprobs = [], entropies = [] } = turn;
  if (!logprobs.length) return null;
  const size = (nats) => `${Math.min(100, 25 * (nats ?? 0))}%`;
  const told = (k) => `${tokens[k] ?? ""} ${percent(Math.exp(logprobs[k]))}`;
  return h("div", {}, h("div.between.muted", {}, h("span", {}, `${logprobs.length} tokens: surprise above, entropy below (4 nats at most)`)),
    h("div.strip", { "aria-hidden": "true" }, ...logprobs.map((logprob, k) =>
      h("span", { title: told(k) }, h("i.surprise", { style: { height: size(-logprob) } }), h("i.entropy", { style: { height: size(entropies[k]) } })))),
    h("details", {}, h("summary", {}, "Tokens"), table("Tokens", ["token", "#probability", "#log-probability", "#entropy"], logprobs.map((logprob, k) =>
      [h("code", {}, tokens[k] ?? ""), percent(Math.exp(logprob)), logprob.toFixed(3), entropies[k] === undefined || entropies[k] === null ? "–" : entropies[k].toFixed(3)]))));
}
