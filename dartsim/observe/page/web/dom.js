// Elements, and numbers as people read them. What comes from a run becomes a text node or an attribute, never HTML.

/** @typedef {Node | string | number | null | undefined | false} Child */

/** Properties that `h` sets and `morph` carries over, by element. @type {WeakMap<Node, Record<string, any>>} */
const given = new WeakMap();

/**
 * Build an element. Functions and objects become properties, everything else attributes.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Child | Child[])} children
 * @returns {any} the element
 */
export function h(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  /** @type {Record<string, any>} */
  const props = {};
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "style") { for (const [rule, text] of Object.entries(value)) element.style.setProperty(rule, text); }
    else if (typeof value === "object" || typeof value === "function" || key === "value") props[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child || child === 0) element.append(/** @type {any} */ (child));
  given.set(element, Object.assign(element, props) && props);
  return element;
}

/**
 * Make `old` look like `fresh`: focus, scroll positions and transitions of what stays the same are kept.
 * @param {any} old
 * @param {any} fresh
 */
export function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName || old.id !== fresh.id) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "style" && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  old.style.cssText = fresh.style.cssText;
  const before = given.get(old) ?? {}, now = given.get(fresh) ?? {};
  for (const key of Object.keys(before)) if (!(key in now) && key.startsWith("on")) old[key] = null;
  for (const [key, value] of Object.entries(now)) if (key !== "value" || old !== document.activeElement) old[key] = value;
  given.set(old, now);
  if (old.nodeName.includes("-")) return; // a plot looks after its own children
  const [children, wanted] = [[...old.childNodes], [...fresh.childNodes]];
  wanted.forEach((child, k) => (k < children.length ? morph(children[k], child) : old.append(child)));
  for (const child of children.slice(wanted.length)) child.remove();
}

/** Digits that a reader needs of a number. @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(size >= 100 ? Math.round(value) : Number(value.toPrecision(size < 1 ? 2 : 3)));
}

/** @param {number | null | undefined} share from 0 to 1 */
export const percent = (share) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(share && share < 0.0995 ? 1 : 0)} %`;

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [size, unit] = seconds < 0.1 ? [0.001, "ms"] : seconds < 100 ? [1, "s"] : seconds < 5400 ? [60, "min"] : seconds < 172800 ? [3600, "h"] : [86400, "d"];
  return `${(seconds / size).toFixed(seconds / size < 9.95 ? 1 : 0)} ${unit}`;
}

/** A moment of the run, as hours:minutes:seconds. @param {number} seconds @param {number} [step] between ticks */
export function clock(seconds, step = 1) {
  const total = Math.floor(seconds / Math.min(1, step) + 1e-6) * Math.min(1, step), whole = Math.floor(total + 1e-9);
  const pad = (part) => String(part).padStart(2, "0");
  const text = `${pad(Math.floor(whole / 3600))}:${pad(Math.floor(whole / 60) % 60)}`;
  if (step >= 60) return text;
  return `${text}:${pad(whole % 60)}${step < 1 ? (total - whole).toFixed(step < 0.1 ? 2 : 1).slice(1) : ""}`;
}

/** A swatch of a state, beside its name. @param {{color: string, label: string, meaning?: string}} state */
export const swatch = (state) =>
  h("span.state", { title: state.meaning }, h("i", { style: { background: state.color } }), state.label);

/**
 * @param {string} caption
 * @param {string[]} heads a head that begins with "#" is of numbers
 * @param {(Child | Child[])[][]} rows
 */
export const table = (caption, heads, rows) =>
  h("div.scroll", { tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col", class: aligned(head) }, named(head))))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, n) =>
        h("td", { class: aligned(heads[n]), "data-head": named(heads[n]) }, ...[cell].flat())))))));

/** @param {string} head */
const aligned = (head) => head[0] === "#" ? "number" : null;
/** @param {string} head */
const named = (head) => head.replace("#", "");

/** A list of choices with a label. @param {string} label @param {[string, string][]} choices value and text
 * @param {string} value @param {(value: string) => void} choose */
export const select = (label, choices, value, choose) =>
  h("label.field", {}, label, h("select", { onchange: (event) => choose(event.target.value), value },
    ...choices.map(([key, text]) => h("option", { value: key, selected: key === value }, text))));

/** A row of links of which one is current. @param {string} label @param {[string, string, boolean][]} links */
export const tabs = (label, links) =>
  h("nav.tabs", { "aria-label": label }, ...links.map(([text, href, current]) =>
    h("a", { href, "aria-current": current ? "page" : null }, text)));
