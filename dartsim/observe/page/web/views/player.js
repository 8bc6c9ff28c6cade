// What the agent saw, thought and did, turn by turn.

import { clock, duration, h, number, percent, table } from "../dom.js";
import { get, screen } from "../source.js";
import { current, go, link, viewLink } from "../state.js";
import { groupRows, parting, playable } from "./attempts.js";
import { around } from "./now.js";

/** @param {string[]} runs */
export async function player([run]) {
  const state = current(), attempt = Number(state.attempt), columns = await get(`${run}/attempts`);
  const row = columns?.attempt.indexOf(attempt) ?? -1, played = await get(`${run}/attempt/${attempt}`);
  if (!played) return h("p.muted", {}, row < 0 ? `There is no attempt ${state.attempt}.` :
    `This file does not hold the turns of attempt ${attempt}; dartsim show with the run's folder shows them.`);
  const turns = played.turns, k = Math.max(0, Math.min(turns.length - 1, Number(state.turn ?? 0)));
  const rows = row < 0 ? [] : groupRows(columns, columns.group[row]);
  const others = row < 0 ? [attempt] : rows.map((row) => columns.attempt[row]);
  const peers = (await playable(run, columns, rows)).filter((one) => one.attempt !== attempt);
  const to = (turn) => go({ turn: String(Math.max(0, Math.min(turns.length - 1, turn))) });
  const other = (step) => go({ attempt: String(others.at((others.indexOf(attempt) + step) % others.length)) });
  const keys = {
    ArrowLeft: () => to(k - 1), ArrowRight: () => to(k + 1), Home: () => to(0), End: () => to(turns.length - 1),
    "[": () => other(-1), "]": () => other(1), g: () => go({ view: "attempts", group: String(played.group) }),
  };
  const next = turns[k + 1]?.screen && screen(run, turns[k + 1].screen);
  if (next) new Image().src = next; // there when it is wanted
  return h("section.stack", { keys }, facts(run, played, others), difference(run, played, peers), !turns.length ?
    h("p.muted", {}, played.turns_missing ?? "It has no turns.") :
    h("div.player", {},
      h("div.panel", {}, picture(run, turns[k]),
        h("div.transport", {},
          h("button", { type: "button", onclick: () => to(k - 1), disabled: k === 0, "aria-label": "Turn before" }, "←"),
          h("input", { type: "range", min: 0, max: turns.length - 1, value: String(k), "aria-label": "Turn",
            oninput: (event) => to(Number(event.target.value)) }),
          h("button", { type: "button", onclick: () => to(k + 1), disabled: k === turns.length - 1, "aria-label": "Turn after" }, "→"),
          h("span", { role: "status" }, `turn ${k + 1} of ${turns.length}`)),
        h("p.muted.keys", {}, h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " turns, ", h("kbd", {}, "["), " ", h("kbd", {}, "]"),
          " attempts of the group, ", h("kbd", {}, "g"), " side by side")),
      said(turns[k])));
}

/** @param {[string, any][]} pairs */
const list = (pairs) => h("dl.counts", {}, ...pairs.map(([name, value]) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, ...[value ?? "–"].flat()))));

/** @param {string} run @param {any} played @param {number[]} others attempts of its group */
function facts(run, played, others) {
  const { attempt, task, group, reward, ending, cause, state, reason, update, version, slot, started } = played;
  return h("div.panel.head", {}, h("h1", {}, `Attempt ${attempt}: ${task}`), played.instruction && h("p", {}, played.instruction), list([
    ["reward", reward === null ? "–" : number(reward)], ["outcome", [ending ?? "", cause && h("small", {}, ` ${cause}`)]],
    ["became", [state ?? "", h("small", {}, ` ${reason ?? (update == null ? "" : `in update ${update}`)}`)]],
    ["version", version], ["desktop", slot],
    ["started", h("a", { href: viewLink(run, "schedule", around(started)) }, clock(started))],
    [h("a", { href: viewLink(run, "attempts", { group }) }, `group ${group}`), others.map((one) =>
      h("a.chip", { href: link({ attempt: String(one) }), "aria-current": one === attempt ? "true" : null }, one))],
  ]));
}

/** Where it parted from the best attempt of its group with another reward. @param {string} run @param {any} played
 * @param {any[]} peers the best first */
function difference(run, played, peers) {
  const other = peers.find((one) => one.reward !== null && one.reward !== played.reward), k = other ? parting(played.turns, other.turns) : -1;
  if (k < 0) return null;
  const instead = other.turns[k]?.action;
  return h("p.panel", {}, "What made the difference? From ", h("a", { href: link({ turn: String(k) }) }, `turn ${k + 1}`), " on it is unlike ",
    h("a", { href: viewLink(run, "player", { attempt: other.attempt, turn: String(k) }) }, `attempt ${other.attempt}`),
    ` (reward ${number(other.reward)}), which ${instead ? `did ${instead}` : "had ended"}.`);
}

/** What the model said, and what became of it. @param {any} turn */
const said = (turn) => h("div.panel.stack", {}, h("h2", {}, turn.action || "no action"),
  list([
    ["trained on", turn.kept === null ? "–" : turn.kept ? "yes" : "no"], ["advantage", number(turn.advantage)], ["version", turn.version],
    ["model", duration(turn.model_seconds)], ["desktop", duration(turn.desktop_seconds)],
    ["tokens", `${number(turn.prompt_tokens)} + ${number(turn.response_tokens)}`],
  ]),
  turn.thought && h("p.thought", {}, turn.thought), tokens(turn),
  h("details", { open: !turn.logprobs }, h("summary", {}, "Raw reply"), h("pre", { tabindex: 0 }, turn.reply ?? "")));

/** The screenshot with the action drawn on it. @param {string} run @param {any} turn */
function picture(run, turn) {
  const source = turn.screen && screen(run, turn.screen), words = (turn.draw ?? []).map(spoken).filter(Boolean).join(", ");
  const [width, height] = turn.size ?? [16, 9];
  return h("div.screen", { style: { "aspect-ratio": `${width} / ${height}`, width: `min(100%, ${0.68 * width / height} * 100vh)` } },
    source ? h("img", { src: source, class: width < 400 ? "small" : null, alt: `What the agent saw before: ${turn.action ?? "no action"}` })
      : h("div.blank", {}, "No screenshot of this turn is kept."),
    ...(turn.draw ?? []).flatMap(pointers), words && h("span.typed", {}, words));
}

/** What of an operation is no place. @param {any} operation */
function spoken({ kind, keys, text, amount, button }) {
  if (text) return `“${text}”`;
  if (keys?.length) return keys.join(" + ");
  if (kind === "scroll") return `scroll ${amount?.[1] > 0 ? "up" : amount?.[1] < 0 ? "down" : "sideways"}`;
  return kind === "click" && button === "left" ? "" : `${button && button !== "left" ? `${button} ` : ""}${kind.replace("_", " ")}`;
}

/** @param {any} operation its points are shares of the picture */
function pointers({ kind, points = [] }) {
  const circles = points.map(([x, y], n) => h(`i.point.${n ? "target" : kind}`, { style: { left: `${100 * x}%`, top: `${100 * y}%` } }));
  return points.length > 1 ? [line(points[0], points[points.length - 1]), ...circles] : circles;
}

/** A line over the whole picture. @param {number[]} from @param {number[]} to */
function line(from, to) {
  const make = (/** @type {string} */ tag, /** @type {Record<string, any>} */ attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    return element;
  };
  const svg = make("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(make("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], "vector-effect": "non-scaling-stroke" }));
  return svg;
}

/** What the model wrote, token by token, and how sure it was of each. @param {any} turn */
function tokens({ tokens, logprobs, entropies }) {
  if (!logprobs?.length) return null;
  const size = (nats) => ({ width: `${Math.min(100, 50 * (nats ?? 0))}%` });
  const rows = logprobs.map((logprob, k) => [visible(tokens?.[k] ?? k), percent(logprob === null ? null : Math.exp(logprob)),
    logprob?.toFixed(2) ?? "–", entropies?.[k]?.toFixed(2) ?? "–"]);
  return h("div", {},
    h("p.muted", {}, `${rows.length} token${rows.length > 1 ? "s" : ""}: `, h("i.surprise"), " surprise and ", h("i.entropy"), " entropy, up to 2 nats"),
    h("div.tokens", { tabindex: 0, role: "region", "aria-label": "Tokens" }, ...rows.map(([text, probability, , entropy], k) =>
      h("span", { title: `${text}: probability ${probability}, entropy ${entropy}` }, text,
        h("i.surprise", { style: size(-logprobs[k]) }), h("i.entropy", { style: size(entropies?.[k]) })))),
    h("details.behind", {}, h("summary", {}, "Table"), table("Tokens", ["token", "#probability", "#log-probability", "#entropy"], rows)));
}

/** A token as people read it: one that is only space would be nothing. @param {string | number} token */
const visible = (token) => String(token).replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "·").replace(/^$/, "∅");
