// Lines over hours, versions or samples, with their intervals as bands.

import { clock, h, number, table } from "../dom.js";
import { bubble, color, multiples, place, Plot, ticks, timeStep } from "./plot.js";

const LEFT = 44, RIGHT = 10, TOP = 8, BOTTOM = 20;

/** Colors of runs and arms, which stand for no state (palette of Tol). */
export const PALETTE = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999"];

/**
 * A line; `x` ascends, and values that are null leave a gap.
 * @typedef {{name: string, color: string, x: number[], y: (number | null)[], low?: (number | null)[],
 *   high?: (number | null)[], dots?: boolean}} Line
 * @typedef {{title: string, over: string, lines: Line[], show?: (value: number) => string, size?: number,
 *   floor?: number, roof?: number, extent?: [number, number]}} Lines
 */

class LinesPlot extends Plot {
  range = { left: 0, right: 1, low: 0, high: 1 };
  /** @type {number | null} the x under the pointer */
  #at = null;

  changed() {
    /** @type {Lines} */
    const { lines, floor, roof, extent } = this.data;
    let [left, right] = extent ?? [Infinity, -Infinity], [low, high] = [floor ?? Infinity, roof ?? -Infinity];
    for (const line of lines) {
      for (const x of extent ? [] : line.x) { left = Math.min(left, x); right = Math.max(right, x); }
      for (const values of [line.y, line.low ?? [], line.high ?? []]) {
        for (const y of values) if (y !== null) { low = Math.min(low, y); high = Math.max(high, y); }
      }
    }
    if (!(high >= low)) [low, high] = [0, 1]; // there is nothing yet
    if (high === low) [low, high] = [floor ?? low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)];
    const room = 0.04 * (high - low);
    this.range = { left, right: right > left ? right : left + 1, low: floor === low ? low : low - room, high: roof === high ? high : high + room };
    const show = this.data.show ?? number;
    const label = lines.map((line) => {
      const values = line.y.filter((y) => y !== null);
      return values.length ? `${line.name} from ${show(values[0])} to ${show(values[values.length - 1])}` : `${line.name}: nothing yet`;
    });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${this.data.title} over ${this.data.over}: ${label.join("; ")}`);
    this.canvas.onpointermove = (event) => this.#hover(event);
    this.canvas.onpointerout = () => { this.#at = null; this.redraw(); };
  }

  height() { return this.data.size ?? 150; }

  /** @param {PointerEvent} event */
  #hover(event) {
    const { left, right } = this.range, width = this.clientWidth - LEFT - RIGHT;
    this.#at = left + (event.offsetX - LEFT) / width * (right - left);
    const show = this.data.show ?? number, near = this.data.lines.map((line) => nearest(line.x, this.#at));
    const shown = this.data.lines.map((line, k) => near[k] < 0 ? null :
      [h("i.dot", { style: { background: line.color } }), `${line.name} ${line.y[near[k]] === null ? "–" : show(line.y[near[k]])}`,
        line.low && line.low[near[k]] !== null ? ` (${show(line.low[near[k]])} to ${show(line.high[near[k]])})` : ""]);
    const first = near.findIndex((n) => n >= 0);
    if (first < 0) return;
    bubble(event, [this.#said(this.data.lines[first].x[near[first]]),
      ...shown.filter(Boolean).map((parts) => h("span", {}, ...parts))]);
    this.redraw();
  }

  /** A value of the axis as text: hours as a time. @param {number} x */
  #said(x) { return this.data.over === "hours" ? clock(3600 * x) : `${this.data.over} ${number(x)}`; }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  paint(pen, width, height) {
    const { left, right, low, high } = this.range, bottom = height - BOTTOM, show = this.data.show ?? number;
    const toX = (x) => LEFT + (x - left) / (right - left) * (width - LEFT - RIGHT);
    const toY = (y) => bottom - (y - low) / (high - low) * (bottom - TOP);
    pen.textAlign = "right";
    const values = ticks(low, high, height > 200 ? 6 : 4), alike = new Set(values.map(show)).size < values.length;
    for (const value of values) {
      pen.fillStyle = color("grid");
      pen.fillRect(LEFT, Math.round(toY(value)), width - LEFT - RIGHT, 1);
      pen.fillStyle = color("muted");
      pen.fillText(alike ? String(Number(value.toPrecision(5))) : show(value), LEFT - 6, toY(value));
    }
    pen.textAlign = "center";
    const times = this.data.over === "hours", step = timeStep(3600 * (right - left), Math.max(2, width / 80));
    for (const value of times ? multiples(left, right, step / 3600) : ticks(left, right, Math.max(2, width / 60))) {
      if (toX(value) < width - 18) pen.fillText(times ? clock(3600 * value + 1e-6, step) : number(value), toX(value), height - 8);
    }
    if (this.#at !== null) {
      pen.fillStyle = color("muted");
      pen.fillRect(Math.round(Math.max(LEFT, Math.min(width - RIGHT, toX(this.#at)))), TOP, 1, bottom - TOP);
    }
    for (const line of this.data.lines) this.#line(pen, line, toX, toY);
  }

  /** @param {CanvasRenderingContext2D} pen @param {Line} line @param {(x: number) => number} toX
   * @param {(y: number) => number} toY */
  #line(pen, line, toX, toY) {
    const { x, y, low, high } = line;
    pen.fillStyle = pen.strokeStyle = line.color;
    if (low && high) {
      const known = x.map((_, k) => k).filter((k) => low[k] !== null && high[k] !== null);
      pen.globalAlpha = 0.18;
      pen.beginPath();
      for (const k of known) pen.lineTo(toX(x[k]), toY(/** @type {number} */ (high[k])));
      for (const k of known.reverse()) pen.lineTo(toX(x[k]), toY(/** @type {number} */ (low[k])));
      pen.fill();
      pen.globalAlpha = 1;
    }
    pen.lineWidth = 1.5;
    pen.lineJoin = "round";
    pen.beginPath();
    let gap = true;
    x.forEach((at, k) => {
      const value = y[k];
      if (value !== null && value !== undefined) gap ? pen.moveTo(toX(at), toY(value)) : pen.lineTo(toX(at), toY(value));
      gap = value === null || value === undefined;
    });
    pen.stroke();
    if (line.dots || x.length < 3) {
      x.forEach((at, k) => {
        if (y[k] === null) return;
        pen.beginPath();
        pen.arc(toX(at), toY(/** @type {number} */ (y[k])), 2.5, 0, 7);
        pen.fill();
      });
    }
  }

  table() {
    /** @type {Lines} */
    const { title, lines, show = number } = this.data;
    const rows = lines.flatMap((line) => {
      const every = Math.ceil(line.x.length / 100); // a long line is thinned: nobody reads ten thousand rows
      return line.x.map((x, k) => [line.name, this.#said(x), line.y[k] === null ? "–" : show(/** @type {number} */ (line.y[k])),
        line.low?.[k] == null ? "" : `${show(line.low[k])} to ${show(/** @type {number} */ (line.high?.[k]))}`])
        .filter((_, k) => k % every === 0);
    });
    return table(title, ["line", "#at", "#value", "#95 % interval"], rows);
  }
}
customElements.define("lines-plot", LinesPlot);

/** @param {ArrayLike<number>} values ascending @param {number | null} value */
function nearest(values, value) {
  if (!values.length || value === null) return -1;
  const k = place(values, value);
  return k < 0 ? 0 : k + 1 < values.length && values[k + 1] - value < value - values[k] ? k + 1 : k;
}

/** A titled plot of lines. @param {Lines} data @param {any} [note] */
export const linesFigure = (data, note) =>
  h("figure.panel", {}, h("figcaption", {}, h("b", {}, data.title), note && h("span.muted", {}, note)), h("lines-plot", { data }));
