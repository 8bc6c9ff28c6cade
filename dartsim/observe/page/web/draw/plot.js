// What all canvases share: size, colors of the theme, frames, axes, the bubble beside the pointer, the table behind.

import { h } from "../dom.js";

/** @type {Map<string, string>} */
const colors = new Map();
/** @type {Set<Plot>} */
const plots = new Set();

/** A color of the theme, as the style sheet defines it. @param {string} name */
export function color(name) {
  if (!colors.has(name)) {
    const probe = document.body.appendChild(h("i", { style: { color: `var(--${name})` } }));
    colors.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return /** @type {string} */ (colors.get(name));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colors.clear();
  for (const plot of plots) plot.redraw();
});

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
  43200, 86400, 172800, 604800];

/** Seconds between ticks of a time axis. @param {number} span seconds @param {number} most ticks */
export const timeStep = (span, most) => STEPS.find((step) => span / step <= most) ?? span / 4;

/** Round values that cover a range. @param {number} low @param {number} high @param {number} most */
export function ticks(low, high, most) {
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  return multiples(low, high, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999) ?? rough);
}

/** The multiples of a step in a range. @param {number} low @param {number} high @param {number} step */
export function multiples(low, high, step) {
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) => (first + k) * step);
}

/** The place of the last element that is not above a value; -1 if all are. @param {ArrayLike<number>} values
 * @param {number} value */
export function place(values, value) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= value) low = middle + 1; else high = middle; }
  return low - 1;
}

/** Show lines of text beside the pointer; null hides them. @param {MouseEvent | null} event @param {any[]} [lines] */
export function bubble(event, lines = []) {
  const tip = /** @type {HTMLElement} */ (document.getElementById("tip"));
  tip.hidden = event === null || !lines.length;
  if (event === null || tip.hidden) return;
  tip.replaceChildren(...lines.map((line) => h("div", {}, line)));
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

/** A canvas as wide as its place, with a table of the same data for those who cannot see it. */
export class Plot extends HTMLElement {
  /** @type {any} */
  #data = null;
  #queued = false;
  #details = h("details.behind", { ontoggle: () => this.tabulate() }, h("summary", {}, "Table"));
  /** Milliseconds that the last frames took to draw. @type {number[]} */
  frames = [];
  canvas = h("canvas");
  pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
  #sizes = new ResizeObserver(() => this.redraw());

  get data() { return this.#data; }
  set data(value) {
    this.#data = value;
    this.changed();
    this.redraw();
  }

  connectedCallback() {
    if (!this.canvas.isConnected) this.append(this.canvas, this.#details);
    this.#sizes.observe(this);
    plots.add(this);
    this.canvas.onpointerleave = () => bubble(null);
    this.redraw();
  }

  disconnectedCallback() {
    this.#sizes.disconnect();
    plots.delete(this);
  }

  /** Write the table anew, if it is open. */
  tabulate() { if (this.#details.open) this.#details.replaceChildren(this.#details.firstChild, this.table()); }

  redraw() {
    if (this.#queued || !this.isConnected) return;
    this.#queued = true;
    requestAnimationFrame(() => {
      this.#queued = false;
      const width = this.clientWidth, height = this.#data && this.height(), scale = devicePixelRatio || 1;
      if (!width || !height) return;
      const start = performance.now(), { canvas, pen } = this;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
        canvas.style.height = `${height}px`;
      }
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.clearRect(0, 0, width, height);
      pen.font = `11px ${getComputedStyle(this).fontFamily}`;
      pen.textBaseline = "middle";
      this.paint(pen, width, height);
      this.frames = [...this.frames.slice(-99), performance.now() - start];
    });
  }

  // What a kind of plot defines.
  changed() {}
  /** @returns {number} */
  height() { return 160; }
  /** @param {CanvasRenderingContext2D} _pen @param {number} _width @param {number} _height */
  paint(_pen, _width, _height) {}
  /** @returns {HTMLElement} */
  table() { return h("p"); }
}
