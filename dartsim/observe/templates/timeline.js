// The timeline: one canvas for each run, all on the same stretch of time. Drawn by hand, because tens of thousands of
// bars stay fluid on a canvas and every one of them, however short, can be hovered.
{
  const { runs, styles, names } = JSON.parse(document.getElementById("timelines").textContent);
  const host = document.getElementById("timeline-canvases");
  const GUTTER = 86, AXIS = 26, HEAD = 6, GAP = 12, HEIGHT = { trainer: 18, engines: 150, desktops: 380 };
  const bubble = document.createElement("div");
  bubble.className = "bubble";
  bubble.hidden = true;
  document.body.append(bubble);

  const whole = [Math.min(...runs.map(run => run.start_seconds)), Math.max(...runs.map(run => run.end_seconds))];
  // Where recorded stretches overlap well, the overlap is shown first: the same moments of every run.
  const common = [Math.max(...runs.map(run => run.start_seconds)), Math.min(...runs.map(run => run.end_seconds))];
  const first = common[1] - common[0] > 0.2 * (whole[1] - whole[0]) ? common : whole;
  // At most two hours at first: over more, single stays are thinner than a pixel.
  let view = [Math.max(first[0], first[1] - 7200), first[1]], alone = null, queued = false;

  function prepare(run) {
    let y = HEAD;
    const bands = run.populations.map(population => {
      const row = Math.max(2, Math.min(18, Math.floor(HEIGHT[population.name] / population.tracks.length)));
      const band = { name: population.name, size: population.size, top: y, row, colors: [], looks: [], tracks: [] };
      band.looks = population.states.map(state => styles[population.name][state]);
      band.tracks = population.tracks.map(track => {
        const borders = new Float64Array(track.durations_ms.length + 1);
        borders[0] = run.start_seconds;
        track.durations_ms.forEach((duration, k) => { borders[k + 1] = borders[k] + duration / 1000; });
        return { index: track.index, states: track.states, borders };
      });
      y += row * band.tracks.length + GAP;
      return band;
    });
    return { run, bands, height: y - GAP + 4 + AXIS };
  }

  const at = (borders, time) => { // the stay that a moment lies in, or the nearest
    let low = 0, high = borders.length - 2;
    while (low < high) { const middle = (low + high + 1) >> 1; if (borders[middle] <= time) low = middle; else high = middle - 1; }
    return low;
  };
  const clock = seconds => {
    const total = Math.round(seconds), pad = part => String(part).padStart(2, "0");
    return `${Math.floor(total / 3600)}:${pad(Math.floor(total / 60) % 60)}:${pad(total % 60)}`;
  };
  const length = seconds => seconds < 100 ? `${seconds.toFixed(1)} s` : seconds < 5400 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(2)} h`;

  function ticks(span, number) {
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
    return steps.find(step => span / step <= number) || span / 4;
  }

  function draw(lane) {
    const { canvas, bands, height } = lane, width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
    if (!width) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d"), [from, to] = view, per = (width - GUTTER) / (to - from);
    const muted = css("muted"), grid = css("grid"), bottom = height - AXIS;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const step = ticks(to - from, Math.min(11, (width - GUTTER) / 84));
    pen.textAlign = "center";
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = GUTTER + (time - from) * per;
      pen.fillStyle = grid;
      pen.fillRect(x, 0, 1, bottom);
      pen.fillStyle = muted;
      if (x < width - 26) pen.fillText(clock(time), x, bottom + 13);
    }
    pen.textAlign = "right";
    pen.save();
    for (const band of bands) {
      pen.fillStyle = muted;
      const middle = band.top + band.row * band.tracks.length / 2;
      pen.fillText(names[band.name], GUTTER - 10, middle - (band.tracks.length > 1 ? 7 : 0));
      if (band.tracks.length > 1) pen.fillText(band.tracks.length < band.size ? `${band.tracks.length} of ${band.size}` : String(band.size), GUTTER - 10, middle + 8);
    }
    pen.beginPath();
    pen.rect(GUTTER, 0, width - GUTTER, bottom);
    pen.clip();
    for (const band of bands) {
      const inner = band.row > 4 ? band.row - 1 : band.row;
      const boxes = band.looks.map(() => []); // by state, so that the colour changes once a state
      band.tracks.forEach((track, k) => {
        const { borders, states } = track;
        if (!states.length) return;
        const y = band.top + k * band.row;
        for (let n = at(borders, from); n < states.length && borders[n] < to; n++) {
          let x = GUTTER + (Math.max(borders[n], from) - from) * per, end = GUTTER + (Math.min(borders[n + 1], to) - from) * per;
          // Wide ones meet on whole pixels, so that no seam shows; thin ones mix, so that none hides another.
          if (end - x > 2) { x = Math.round(x * scale) / scale; end = Math.round(end * scale) / scale; }
          boxes[states[n]].push(x, y, Math.max(end - x, 0.4), inner);
        }
      });
      boxes.forEach((box, state) => {
        pen.fillStyle = band.looks[state].color;
        pen.globalAlpha = alone && alone !== pen.fillStyle ? 0.1 : band.looks[state].label === "off" ? 0.35 : 1;
        for (let n = 0; n < box.length; n += 4) pen.fillRect(box[n], box[n + 1], box[n + 2], box[n + 3]);
      });
      pen.globalAlpha = 1;
    }
    if (lane.drag && !lane.drag.moving) {
      pen.fillStyle = css("accent");
      pen.globalAlpha = 0.22;
      pen.fillRect(Math.min(lane.drag.x, lane.drag.now), 0, Math.abs(lane.drag.now - lane.drag.x), bottom);
    }
    pen.restore();
  }

  const lanes = host ? runs.map(prepare) : [];
  const redraw = () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; lanes.forEach(draw); });
  };
  function look(from, to) {
    const span = Math.min(Math.max(to - from, 0.5), whole[1] - whole[0]);
    const start = Math.min(Math.max(from, whole[0]), whole[1] - span);
    view = [start, start + span];
    redraw();
  }
  function zoom(factor, centre) {
    look(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  }

  function hover(lane, event) {
    const box = lane.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const time = view[0] + (x - GUTTER) / (box.width - GUTTER) * (view[1] - view[0]);
    const band = lane.bands.find(item => y >= item.top && y < item.top + item.row * item.tracks.length);
    const track = band && x >= GUTTER && band.tracks[Math.floor((y - band.top) / band.row)];
    bubble.hidden = !track || !track.states.length || time < track.borders[0] || time > track.borders[track.borders.length - 1];
    if (bubble.hidden) return;
    const n = at(track.borders, time), style = band.looks[track.states[n]], part = band.name.replace(/s$/, "");
    const title = document.createElement("b"), swatch = document.createElement("i"), lines = [
      ` · ${length(track.borders[n + 1] - track.borders[n])}`, `${clock(track.borders[n])} – ${clock(track.borders[n + 1])}`, style.meaning];
    swatch.style.background = style.color;
    title.textContent = ` ${band.size > 1 ? `${part} ${track.index}` : part}: ${style.label}`;
    bubble.replaceChildren(swatch, title, lines[0], document.createElement("br"), lines[1], document.createElement("br"), lines[2]);
    bubble.style.left = `${Math.min(event.clientX + 14, window.innerWidth - bubble.offsetWidth - 12)}px`;
    bubble.style.top = `${event.clientY + bubble.offsetHeight + 24 > window.innerHeight ? event.clientY - bubble.offsetHeight - 12 : event.clientY + 16}px`;
  }

  function listen(lane) {
    const { canvas } = lane;
    const place = event => Math.max(GUTTER, event.clientX - canvas.getBoundingClientRect().left);
    const moment = x => view[0] + (x - GUTTER) / (canvas.clientWidth - GUTTER) * (view[1] - view[0]);
    canvas.addEventListener("pointerdown", event => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      lane.drag = { x: place(event), now: place(event), moving: event.shiftKey, view: [...view] };
    });
    canvas.addEventListener("pointermove", event => {
      if (!lane.drag) { hover(lane, event); return; }
      bubble.hidden = true;
      lane.drag.now = place(event);
      if (lane.drag.moving) {
        const shift = (lane.drag.x - lane.drag.now) / (canvas.clientWidth - GUTTER) * (view[1] - view[0]);
        look(lane.drag.view[0] + shift, lane.drag.view[1] + shift);
      } else redraw();
    });
    canvas.addEventListener("pointerup", () => {
      const drag = lane.drag;
      lane.drag = null;
      if (drag && !drag.moving && Math.abs(drag.now - drag.x) > 4) look(moment(Math.min(drag.x, drag.now)), moment(Math.max(drag.x, drag.now)));
      else redraw();
    });
    canvas.addEventListener("pointercancel", () => { lane.drag = null; redraw(); });
    canvas.addEventListener("pointerleave", () => { bubble.hidden = true; });
    canvas.addEventListener("dblclick", () => look(...whole));
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.002), moment(place(event)));
    }, { passive: false });
  }

  for (const lane of lanes) {
    const box = document.createElement("div"), canvas = document.createElement("canvas");
    if (runs.length > 1) {
      const title = document.createElement("p");
      title.className = "run-name";
      title.textContent = lane.run.name;
      host.append(title);
    }
    box.className = "timeline";
    canvas.style.height = `${lane.height}px`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Timeline of ${lane.run.name}: trainer, engines and desktops by state`);
    lane.canvas = canvas;
    box.append(canvas);
    host.append(box);
    listen(lane);
  }
  document.querySelectorAll("[data-zoom]").forEach(button => button.addEventListener("click", () => {
    const middle = (view[0] + view[1]) / 2;
    if (button.dataset.zoom === "all") look(...whole);
    else zoom(button.dataset.zoom === "in" ? 0.5 : 2, middle);
  }));
  document.querySelectorAll(".keys .key").forEach(key => {
    const set = color => () => { alone = color; redraw(); };
    for (const kind of ["pointerenter", "focus"]) key.addEventListener(kind, set(key.dataset.color));
    for (const kind of ["pointerleave", "blur"]) key.addEventListener(kind, set(null));
  });
  if (host) new ResizeObserver(redraw).observe(host);
  darkTheme.addEventListener("change", redraw);
  redraw();
}
