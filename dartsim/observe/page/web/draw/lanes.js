// The schedule: shares of states when far away, single members when near, on one stretch of time for all runs.

import { clock, duration, h, percent, table } from "../dom.js";
import { moves } from "./moves.js";
import { bubble, color, place, Plot, timeStep } from "./plot.js";

const AXIS = 20, MAP = 26, MARKS = 30, GAP = 8, ROW = 4, MAX_CHUNKS = 4, MIN_PIXELS = 3;

/**
 * @typedef {{key: string, label: string, color: string, meaning?: string}} State
 * @typedef {{seconds: number, from: number, shares: number[][]}} Level share of members by bin and state
 * @typedef {{name: string, title: string, size: number, states: State[], levels: Level[]}} Population the coarsest level first
 * @typedef {{state: number[], start: number[], end: number[], attempt: (number | null)[]}} Track
 * @typedef {Record<string, Map<number, Track>>} Chunk tracks of members, by population
 * @typedef {{time: number, kind: string, label: string}} Mark
 * @typedef {{population: Population, top: number, height: number, row: number}} Box row: its pixels; 0 for shares
 *
 * @typedef {object} Lanes
 * @property {string} name
 * @property {number} from
 * @property {number} to
 * @property {Population[]} populations
 * @property {{id: string, from: number, to: number}[]} chunks
 * @property {(id: string) => Promise<Chunk>} load
 * @property {Mark[]} marks
 * @property {[number, number] | null} view
 * @property {(attempt: number) => string} attempt the address of one
 * @property {(view: [number, number]) => void} moved
 */

/** Colors of the theme, by kind of mark. @type {Record<string, string>} */
const MARK_COLORS = { update: "update", fault: "bad", alarm: "warn", sync: "sync" };

/** All schedules on the page, which move together. @type {Set<LanesPlot>} */
const together = new Set();

class LanesPlot extends Plot {
  /** @type {Map<string, Chunk | null>} null while it is loading */
  #chunks = new Map();
  /** The first member shown, by population. @type {Record<string, number>} */
  #first = {};
  /** @type {Box[]} */
  #boxes = [];
  /** @type {Lanes | null} */
  #before = null;
  view = /** @type {[number, number]} */ ([0, 1]);

  connectedCallback() {
    super.connectedCallback();
    together.add(this);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    const span = () => this.view[1] - this.view[0], near = () => this.zoom(0.6);
    const pan = (parts) => this.show(this.view[0] + parts * span(), this.view[1] + parts * span());
    const down = (rows) => this.#scroll(this.data.populations[0], rows);
    moves(this.canvas, {
      pan: (dx, dy, y) => this.#pan(dx, dy, y),
      zoom: (factor, x) => this.zoom(factor, x),
      click: (event) => this.#click(event),
      hover: (event) => this.#hover(event),
      keys: {
        ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: () => down(-10), ArrowDown: () => down(10),
        "+": near, "=": near, "-": () => this.zoom(1 / 0.6),
        Home: () => this.show(this.data.from, this.data.to), End: () => this.show(this.data.to - span(), this.data.to),
      },
    });
  }

  disconnectedCallback() { super.disconnectedCallback(); together.delete(this); }

  changed() {
    /** @type {Lanes} */
    const data = this.data, before = this.#before;
    if (before?.name !== data.name) {
      this.#chunks.clear();
      this.view = data.view ?? [data.from, data.to];
    } else if (this.view[1] >= before.to && data.to > before.to) { // it was at the end, and follows it
      this.view = [this.view[0] <= before.from ? data.from : this.view[0] + data.to - before.to, data.to];
    }
    for (const id of this.#chunks.keys()) {
      const chunk = data.chunks.find((chunk) => chunk.id === id);
      if (!chunk) this.#chunks.delete(id);
      else if (before && chunk.to > before.to) this.#load(id); // it grows while the run does
    }
    this.#before = data;
    const sizes = data.populations.map((population) => `${population.size} ${population.name}`).join(", ");
    this.canvas.setAttribute("aria-label", `Schedule of ${data.name}: ${sizes}. Arrow keys move, plus and minus ` +
      "zoom, Home shows the whole run; the table below lists what is in view.");
  }

  height() { return Math.max(340, Math.min(900, innerHeight - 200)) / (together.size > 1 ? 1.5 : 1); }

  get #left() { return this.clientWidth < 600 ? 58 : 84; }

  /** Pixels to a second. */
  get #scale() { return (this.clientWidth - this.#left) / (this.view[1] - this.view[0]); }

  /** The time of a pixel. @param {number} x */
  #time(x) { return this.view[0] + (x - this.#left) / this.#scale; }

  // --- moving

  /** Show a stretch of time, as far as there is one. @param {number} from @param {number} to */
  show(from, to) {
    const { from: first, to: last } = this.data, span = Math.max(0.5, Math.min(to - from, last - first));
    const start = Math.max(first, Math.min(from, last - span));
    for (const plot of together) { plot.view = [start, start + span]; plot.redraw(); }
    this.data.moved(this.view);
  }

  /** @param {number} factor @param {number} [x] in pixels; the middle by default */
  zoom(factor, x = (this.clientWidth + this.#left) / 2) {
    const [from, to] = this.view, fixed = Math.max(from, this.#time(x));
    bubble(null);
    this.show(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
  }

  /** @param {number} dx @param {number} dy @param {number} y */
  #pan(dx, dy, y) {
    const { from, to } = this.data;
    const map = (this.clientWidth - this.#left) / (to - from), by = y < MAP ? dx / map : -dx / this.#scale;
    this.show(this.view[0] + by, this.view[1] + by);
    const box = this.#boxes.find((box) => y >= box.top && y < box.top + box.height);
    if (box?.row) this.#scroll(box.population, -dy / box.row);
    bubble(null);
  }

  /** @param {Population} population @param {number} rows */
  #scroll(population, rows) {
    this.#first[population.name] = (this.#first[population.name] ?? 0) + rows; // kept in bounds where it is drawn
    this.redraw();
  }

  /** @param {PointerEvent} event */
  #click(event) {
    const { from, to } = this.data, half = (this.view[1] - this.view[0]) / 2;
    if (event.offsetY < MAP) {
      const middle = from + (event.offsetX - this.#left) / (this.clientWidth - this.#left) * (to - from);
      return this.show(middle - half, middle + half);
    }
    const attempt = this.#under(event)?.attempt;
    if (attempt !== null && attempt !== undefined) location.hash = this.data.attempt(attempt);
  }

  /** What lies under the pointer. @param {MouseEvent} event */
  #under(event) {
    const box = this.#boxes.find((box) => event.offsetY >= box.top && event.offsetY < box.top + box.height);
    const time = this.#time(event.offsetX);
    if (!box || event.offsetX < this.#left) return null;
    if (!box.row) return { box, time };
    const { name, states } = box.population, member = Math.floor((event.offsetY - box.top) / box.row) + this.#top(name);
    for (const chunk of this.#visible() ?? []) {
      const track = chunk[name]?.get(member), n = track ? place(track.start, time) : -1;
      if (!track || n < 0 || track.end[n] <= time) continue;
      const { start, end, attempt } = track;
      return { box, time, member, state: states[track.state[n]], start: start[n], end: end[n], attempt: attempt[n] };
    }
    return { box, time, member };
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const under = this.#under(event), time = this.#time(event.offsetX), step = timeStep(200 / this.#scale, 200);
    this.canvas.style.cursor = typeof under?.attempt === "number" ? "pointer" : "";
    if (event.offsetY > MAP && event.offsetY < MAP + MARKS) {
      const marks = this.data.marks.filter((mark) => Math.abs(mark.time - time) < 5 / this.#scale);
      return bubble(event, marks.slice(0, 8).map((mark) => `${clock(mark.time)}  ${mark.label}`));
    }
    if (under?.state) {
      const { box, member, state, start, end, attempt } = under;
      return bubble(event, [h("b", {}, `${box.population.title} ${member}: ${state.label}`), state.meaning ?? "",
        `${clock(start, step)} for ${duration(end - start)}`,
        attempt == null ? "" : `attempt ${attempt}: click opens it`]);
    }
    if (!under) return bubble(null);
    const level = this.#level(under.box.population, this.#scale);
    const shares = level?.shares[Math.floor((time - level.from) / level.seconds)];
    if (!shares) return bubble(null);
    const { title, states } = under.box.population, parts = states.map((state, k) => ({ state, share: shares[k] }));
    parts.sort((a, b) => b.share - a.share);
    bubble(event, [h("b", {}, `${title} at ${clock(time, step)}`),
      ...parts.slice(0, 7).filter(({ share }) => share > 0.0005).map(({ state, share }) =>
        h("span", {}, h("i.dot", { style: { background: state.color } }), `${percent(share)} ${state.label}`))]);
  }

  // --- what is drawn

  /** @param {string} population */
  #top(population) { return Math.round(this.#first[population] ?? 0); }

  /** The chunks that cover the view, or null if they are too many, or one is not there yet. */
  #visible() {
    const [from, to] = this.view, wanted = this.data.chunks.filter((chunk) => chunk.from < to && chunk.to > from);
    if (!wanted.length || wanted.length > MAX_CHUNKS || wanted[0].from > (from + to) / 2) return null;
    for (const { id } of wanted) {
      if (this.#chunks.has(id)) continue;
      this.#chunks.set(id, null);
      this.#load(id);
    }
    const chunks = wanted.map(({ id }) => this.#chunks.get(id));
    return chunks.every(Boolean) ? /** @type {Chunk[]} */ (chunks) : null;
  }

  /** @param {string} id */
  async #load(id) {
    const chunk = await this.data.load(id).catch(() => null);
    if (chunk) this.#chunks.set(id, chunk);
    this.redraw();
    this.tabulate();
  }

  /** The finest level with bins of a pixel or more. @param {Population} population @param {number} scale */
  #level({ levels }, scale) { return levels.findLast((level) => level.seconds * scale >= 1) ?? levels[0]; }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  paint(pen, width, height) {
    const [from, to] = this.view, left = this.#left, scale = this.#scale, visible = this.#visible();
    const bottom = height - AXIS, toX = (time) => left + (time - from) * scale;
    const step = timeStep(to - from, Math.min(12, (width - left) / 80));
    pen.textAlign = "center";
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = Math.round(toX(time));
      pen.fillStyle = color("grid");
      pen.fillRect(x, MAP + 4, 1, bottom - MAP);
      pen.fillStyle = color("muted");
      if (x > left + 18 && x < width - 24) pen.fillText(clock(time, step), x, bottom + 11);
    }
    this.#layout(bottom, visible);
    pen.textAlign = "right";
    for (const { population: { title, name, size }, top, height, row } of this.#boxes) {
      const first = this.#top(name), shown = Math.round(height / row), part = row > 0 && shown < size;
      pen.fillText(title, left - 8, top + height / 2 - (height > 30 && size ? 7 : 0));
      const members = part ? `${first}–${first + shown - 1}` : `${size}`;
      if (height > 30 && size) pen.fillText(members, left - 8, top + height / 2 + 7);
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width - left, bottom);
    pen.clip();
    for (const box of this.#boxes) {
      if (box.row && visible) this.#rows(pen, box, visible, toX);
      else this.#shares(pen, box, this.#level(box.population, scale), this.view, toX);
    }
    this.#marks(pen, toX, bottom);
    this.#map(pen, width);
    pen.restore();
  }

  /** Give each population its place, and members rows where single ones can be drawn.
   * @param {number} bottom @param {Chunk[] | null} visible */
  #layout(bottom, visible) {
    /** @type {Population[]} */
    const populations = this.data.populations, room = bottom - MAP - MARKS - GAP * populations.length;
    const wants = populations.map(({ size }) => size === 1 ? 18 : size ? Math.min(3 * size, 1200) + 20 : 24);
    const heights = wants.map((want) => Math.min(want, room / 5)), rest = room - heights.reduce((a, b) => a + b, 0);
    heights[wants.indexOf(Math.max(...wants))] += rest;
    let top = MAP + MARKS;
    this.#boxes = populations.map((population, k) => {
      const { name, size } = population, height = heights[k];
      const rows = visible !== null && size > 0 && this.#readable(visible, population);
      const box = { population, top, height, row: rows ? Math.max(Math.min(ROW, height), height / size) : 0 };
      const most = size - Math.floor(height / box.row);
      if (box.row) this.#first[name] = Math.max(0, Math.min(most, this.#first[name] ?? 0));
      top += height + GAP;
      return box;
    });
  }

  /** Whether the stays of single members are wide enough to be told apart.
   * @param {Chunk[]} visible @param {Population} population */
  #readable(visible, { name, size }) {
    const [from, to] = this.view, step = Math.ceil(size / 8);
    let sampled = 0, stays = 0;
    for (let member = 0; member < size; member += step) {
      sampled++;
      for (const chunk of visible) {
        const start = chunk[name]?.get(member)?.start ?? [];
        stays += place(start, to) - place(start, from);
      }
    }
    return MIN_PIXELS * stays < sampled * (this.clientWidth - this.#left);
  }

  /** Stack the shares of states. @param {CanvasRenderingContext2D} pen @param {Omit<Box, "row">} box
   * @param {Level | undefined} level @param {[number, number]} view @param {(time: number) => number} toX */
  #shares(pen, box, level, [from, to], toX) {
    if (!level) return;
    const first = Math.max(0, Math.floor((from - level.from) / level.seconds));
    const last = Math.min(level.shares.length, Math.ceil((to - level.from) / level.seconds));
    const tops = new Float64Array(Math.max(0, last - first)).fill(box.top + box.height);
    box.population.states.forEach((state, k) => { // by state, so that the color changes once a state
      pen.fillStyle = state.color;
      for (let bin = first; bin < last; bin++) {
        const height = (level.shares[bin]?.[k] ?? 0) * box.height, start = level.from + bin * level.seconds;
        if (!height) continue;
        const x = Math.round(toX(start)), end = Math.round(toX(Math.min(this.data.to, start + level.seconds)));
        tops[bin - first] -= height;
        pen.fillRect(x, tops[bin - first], Math.max(1, end - x), height + 0.3);
      }
    });
  }

  /** @param {CanvasRenderingContext2D} pen @param {Box} box @param {Chunk[]} visible
   * @param {(time: number) => number} toX */
  #rows(pen, { population: { name, size, states }, top, height, row }, visible, toX) {
    const [from, to] = this.view, inner = row > ROW ? row - 1 : row, first = this.#top(name);
    /** @type {number[][]} */
    const bars = states.map(() => []); // by state, so that the color changes once a state
    for (const chunk of visible) {
      for (let member = first; member < Math.min(size, first + Math.round(height / row)); member++) {
        const track = chunk[name]?.get(member), y = top + (member - first) * row;
        if (!track) continue;
        const { start, end, state } = track;
        for (let n = Math.max(0, place(start, from)); n < start.length && start[n] < to; n++) {
          if (end[n] <= from) continue;
          const x = toX(Math.max(from, start[n]));
          bars[state[n]].push(x, y, Math.max(0.4, toX(Math.min(to, end[n])) - x), inner);
        }
      }
    }
    bars.forEach((bar, k) => {
      pen.fillStyle = states[k].color;
      for (let n = 0; n < bar.length; n += 4) pen.fillRect(bar[n], bar[n + 1], bar[n + 2], bar[n + 3]);
    });
  }

  /** @param {CanvasRenderingContext2D} pen @param {(time: number) => number} toX @param {number} bottom */
  #marks(pen, toX, bottom) {
    const [from, to] = this.view, marks = this.data.marks.filter((mark) => mark.time >= from && mark.time <= to);
    const sparse = marks.filter((mark) => mark.kind === "update").length < this.clientWidth / 60;
    let free = 0; // where the next label fits
    pen.textAlign = "left";
    for (const { time, kind, label } of marks) {
      const x = toX(time), update = kind === "update";
      if (update && x < free) continue;
      pen.fillStyle = color(MARK_COLORS[kind] ?? "muted");
      pen.fillRect(x, MAP + (update ? 17 : 5), update ? 1 : 2, 8);
      if (update ? sparse : kind === "alarm") {
        pen.globalAlpha = 0.4;
        pen.fillRect(x, MAP + MARKS - 4, 1, bottom - MAP - MARKS);
        pen.globalAlpha = 1;
      }
      if (!update) continue;
      pen.fillStyle = color("muted");
      pen.fillText(label, x + 3, MAP + 21);
      free = x + pen.measureText(label).width + 12;
    }
  }

  /** The whole run in small, with what is in view. @param {CanvasRenderingContext2D} pen @param {number} width */
  #map(pen, width) {
    const { from, to, populations } = this.data, left = this.#left, scale = (width - left) / (to - from);
    const [start, end] = this.view.map((time) => left + (time - from) * scale), population = populations[0];
    const box = { population, top: 0, height: MAP - 4 };
    this.#shares(pen, box, this.#level(population, scale), [from, to], (time) => left + (time - from) * scale);
    pen.fillStyle = color("veil");
    pen.fillRect(left, 0, start - left, MAP - 4);
    pen.fillRect(end, 0, width, MAP - 4);
    pen.strokeStyle = color("text");
    pen.lineWidth = 1.5;
    pen.strokeRect(start + 1, 1, Math.max(2, end - start - 2), MAP - 6);
  }

  table() {
    const [from, to] = this.view, { marks, populations } = this.data;
    const rows = marks.filter((mark) => mark.time >= from && mark.time <= to).slice(0, 60)
      .map((mark) => [clock(mark.time), mark.kind, mark.label, "", ""]);
    for (const chunk of this.#visible() ?? []) {
      for (const { name, states } of populations) {
        for (const [member, { start, end, state, attempt }] of chunk[name] ?? []) {
          for (let n = 0; n < start.length && rows.length < 300; n++) {
            if (end[n] <= from || start[n] >= to) continue;
            const length = duration(end[n] - start[n]), id = attempt[n];
            const opens = id == null ? "" : h("a", { href: this.data.attempt(id) }, `attempt ${id}`);
            rows.push([clock(start[n]), `${name} ${member}`, states[state[n]].label, length, opens]);
          }
        }
      }
    }
    if (!rows.length) return h("p.muted", {}, "No single states are at hand for so long a time: zoom in.");
    return table(`In view, ${clock(from)} to ${clock(to)}`, ["#at", "what", "state", "#for", "attempt"], rows);
  }
}
customElements.define("lanes-plot", LanesPlot);

/** @param {Lanes} data */
export const lanesPlot = (data) => h("lanes-plot", { data });
