// Shares of a whole as one bar, and intervals beside each other.

import { h, percent, swatch } from "../dom.js";

/** @typedef {{label: string, color: string, meaning?: string, share: number, note?: string}} Part */

/** A bar of parts, with what each is below it. @param {string} title @param {Part[]} parts @param {any} [aside] */
export function shareBar(title, parts, aside) {
  const shown = parts.filter((part) => part.share > 0);
  return h("div.shares", {},
    h("div.between", {}, h("b", {}, title), h("span.muted", {}, aside)),
    h("div.bar", { "aria-hidden": "true" }, ...shown.map((part) =>
      h("i", { title: `${part.label}: ${percent(part.share)}`, style: { background: part.color, "flex-grow": `${part.share}` } }))),
    h("ul.legend", {}, ...[...shown].sort((a, b) => b.share - a.share).map((part) =>
      h("li", {}, swatch(part), " ", h("b", {}, part.note ?? percent(part.share))))));
}

/** An interval on a common scale, zero marked. @param {number} low @param {number} middle @param {number} high
 * @param {[number, number]} scale @param {string} color */
export function interval(low, middle, high, scale, color) {
  const at = (value) => 100 * Math.max(0, Math.min(1, (value - scale[0]) / (scale[1] - scale[0])));
  return h("div.interval", { "aria-hidden": "true" },
    scale[0] < 0 && scale[1] > 0 && h("i.zero", { style: { left: `${at(0)}%` } }),
    h("i.span", { style: { left: `${at(low)}%`, width: `${at(high) - at(low)}%`, background: color } }),
    h("i.middle", { style: { left: `${at(middle)}%`, background: color } }));
}
