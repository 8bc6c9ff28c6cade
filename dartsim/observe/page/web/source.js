// Every view is drawn from named documents: those that the page holds, or those of the server that sent it.

/** @type {Record<string, any> | null} */
let inlined = null;
/** @type {Map<string, Promise<any>>} */
const cache = new Map();
/** @type {Map<string, EventSource>} */
const streams = new Map();

/** Read the documents that the page holds, if it holds any. */
export async function open() {
  const holder = document.getElementById("documents");
  if (!holder) return;
  const text = holder.textContent ?? "";
  if (holder.dataset.encoding !== "gzip") { inlined = JSON.parse(text); return; }
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  inlined = await new Response(stream).json();
}

/** Whether there is a server that the documents come from. */
export const live = () => inlined === null;

/** @param {string} path of parts that are encoded already */
const address = (path) => `api/${path}`;

/** Return a document, or null if the run has none of that name. @param {string} path @returns {Promise<any>} */
export function get(path) {
  if (inlined) return Promise.resolve(inlined[path] ?? null);
  if (!cache.has(path)) {
    cache.set(path, fetch(address(path)).then(async (reply) => {
      if (reply.ok) return reply.json();
      if (reply.status === 404) return null;
      throw new Error((await reply.json().catch(() => ({}))).error ?? `${path}: ${reply.status} ${reply.statusText}`);
    }));
    cache.get(path)?.catch(() => cache.delete(path));
  }
  return /** @type {Promise<any>} */ (cache.get(path));
}

/** The address of a screenshot, or null if the page does not hold it. @param {string} run @param {string} hash */
export function screen(run, hash) {
  const path = `${run}/screen/${hash}.png`;
  return inlined ? inlined[path] ?? null : address(path);
}

/**
 * Be told when documents of these runs changed; whoever comes late has missed nothing, as documents are whole.
 * @param {string[]} runs
 * @param {(names: string[] | null) => void} changed names, or null when the server is lost
 */
export function watch(runs, changed) {
  if (inlined) return;
  for (const [run, stream] of streams) if (!runs.includes(run)) { stream.close(); streams.delete(run); }
  for (const run of runs.filter((run) => !streams.has(run))) {
    const stream = new EventSource(address(`${run}/events`));
    stream.onmessage = (event) => {
      const names = Object.keys(JSON.parse(event.data)).map((name) => `${run}/${name}`);
      for (const path of cache.keys()) {
        if (names.some((name) => path === name || path.startsWith(`${name}/`))) cache.delete(path);
      }
      changed(names);
    };
    stream.onerror = () => changed(null);
    streams.set(run, stream);
  }
}
