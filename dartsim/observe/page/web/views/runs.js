// The runs below a folder, newest first.

import { duration, h, number, percent, table } from "../dom.js";
import { get } from "../source.js";
import { current, encoded, go, viewLink } from "../state.js";
import { badge } from "./now.js";

export async function runs() {
  const found = await get("runs") ?? [], chosen = (current().chosen ?? "").split(",").filter(Boolean);
  if (!found.length) return h("p.muted", {}, "There are no runs below this folder.");
  const heads = ["compare", "run", "state", "scheduler", "#seed", "#time", "#success", "#trained turns/min", "#desktops used",
    "#engines used", "differs in"];
  return h("section.stack", {},
    h("div.between", {}, h("h1", {}, "Runs"),
      chosen.length > 1 && h("a.button", { href: viewLink(chosen.join(","), "learning") }, `Compare ${chosen.length} runs`)),
    h("div.panel", {}, table("Runs, newest first", heads, found.map((run) => {
      const id = encoded(run.id), others = chosen.filter((one) => one !== id);
      const choose = () => go({ chosen: (others.length < chosen.length ? others : [...chosen, id]).join(",") });
      return [
        h("input", { type: "checkbox", "aria-label": `Compare ${run.id}`, checked: chosen.includes(id), onchange: choose }),
        h("a", { href: viewLink(id, "now") }, run.id),
        badge(run.state), run.scheduler ?? "", run.seed ?? "", duration(run.seconds), percent(run.success),
        number(run.figures.trained_turns_per_minute), percent(run.figures.env_utilization), percent(run.figures.gpu_utilization),
        run.error ? h("span.error", {}, run.error) : differences(Object.entries(run.differs).map(([key, value]) => `${key} = ${value}`)),
      ];
    }))));
}

/** Settings as one line, or behind a click if nobody would read so many. @param {string[]} settings */
const differences = (settings) => settings.length > 6 ?
  h("details.muted", {}, h("summary", {}, `${settings.length} settings`), settings.join(", ")) : h("span.muted", {}, settings.join(", "));
