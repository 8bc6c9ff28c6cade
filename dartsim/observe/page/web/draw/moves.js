// How a plot is moved: wheel, mouse, fingers and keys become a few calls.

/**
 * @typedef {object} Moved
 * @property {(dx: number, dy: number, y: number) => void} pan by pixels; y is where it was taken hold of
 * @property {(factor: number, x?: number) => void} zoom of the time in view, about a pixel
 * @property {(event: PointerEvent) => void} click
 * @property {(event: PointerEvent) => void} hover
 * @property {Record<string, () => void>} keys
 */

/** @param {HTMLCanvasElement} canvas @param {Moved} moved */
export function moves(canvas, moved) {
  /** Pointers that are down, by their last event. @type {Map<number, PointerEvent>} */
  const down = new Map();
  let distance = 0; // since the pointer went down: a click moves less than a drag

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const across = event.shiftKey ? event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(across) > Math.abs(event.deltaY)) moved.pan(-across, 0, event.offsetY);
    else moved.zoom(1.0025 ** Math.max(-200, Math.min(200, event.deltaY)), event.offsetX);
  }, { passive: false });

  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, event);
    distance = 0;
  };

  canvas.onpointermove = (event) => {
    const last = down.get(event.pointerId);
    if (!last) return moved.hover(event);
    const other = [...down.values()].find((finger) => finger.pointerId !== event.pointerId);
    if (other) {
      const apart = (/** @type {PointerEvent} */ finger) => Math.max(10, Math.abs(finger.offsetX - other.offsetX));
      moved.zoom(apart(last) / apart(event), (event.offsetX + other.offsetX) / 2);
    } else moved.pan(event.offsetX - last.offsetX, event.offsetY - last.offsetY, last.offsetY);
    distance += Math.hypot(event.offsetX - last.offsetX, event.offsetY - last.offsetY);
    down.set(event.pointerId, event);
  };

  canvas.onpointerup = (event) => { if (down.delete(event.pointerId) && distance < 4) moved.click(event); };
  canvas.onpointercancel = (event) => down.delete(event.pointerId);

  canvas.onkeydown = (event) => {
    const act = moved.keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
}
