// The runs below a folder, newest first.

import { duration, h, number, percent, table } from "../dom.js";
import { get } from "../source.js";
import { current, go, viewLink } from "../state.js";
import { badge } from "./now.js";

export async function runs() {
  const [found, state] = [await get("runs") ?? [], current()], chosen = (state.chosen ?? "").split(",").filter(Boolean);
  if (!found.length) return h("p.muted", {}, "No runs below this folder.");
  const choose = (id) => go({ chosen: (chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]).join(",") });
  const figures = [...new Set(found.flatMap((run) => Object.keys(run.figures ?? {})))].slice(0, 4);
  return h("section.stack", {},
    h("div.between", {}, h("h1", {}, "Runs"), chosen.length > 1 && h("a.button", { href: viewLink(chosen.map(encodeURIComponent).join(","), "learning") }, `Compare ${chosen.length} runs`)),
    h("div.panel", {}, table("Runs, newest first", ["", "run", "state", "scheduler", "#seed", "#time", "#success", ...figures.map((name) => `#${name.replaceAll("_", " ")}`), "differs in"],
      found.map((run) => [
        h("input", { type: "checkbox", "aria-label": `Compare ${run.name}`, checked: chosen.includes(run.id), onchange: () => choose(run.id) }),
        [h("a", { href: viewLink(encodeURIComponent(run.id), "now") }, run.name), ...(run.tags ?? []).map((tag) => h("span.chip", {}, tag))],
        badge(run.state), run.scheduler ?? "", String(run.seed ?? ""), run.seconds == null ? "–" : duration(run.seconds), percent(run.success), ...figures.map((name) => number(run.figures?.[name])),
        h("span.muted", {}, Object.entries(run.differs ?? {}).map(([key, value]) => `${key} = ${value}`).join(", "))]))));
}
