// Every view is drawn from named documents: those that the page holds, or those of the server that sent it.

/** @type {Record<string, any> | null} */
let inlined = null;
/** @type {Map<string, Promise<any>>} */
const cache = new Map();
/** The revisions of what was fetched. @type {Map<string, string>} */
const revisions = new Map();
/** @type {Map<string, EventSource>} */
const streams = new Map();

/** Read the documents that the page holds, if it holds any. */
export async function open() {
  const text = document.getElementById("documents")?.textContent;
  if (!text) return;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  inlined = await new Response(stream).json();
}

/** Return a document, or null if there is none of that name. @param {string} path @returns {Promise<any>} */
export async function get(path) {
  if (!inlined && !cache.has(path)) {
    cache.set(path, fetched(path));
    cache.get(path)?.catch(() => cache.delete(path));
  }
  const document = await (inlined ? inlined[path] ?? null : cache.get(path));
  if (document?.error && Object.keys(document).length === 1) {
    cache.delete(path); // a run that starts has no status yet
    throw new Error(document.error);
  }
  return document;
}

/** Whether the page itself holds a document. @param {string} path */
export const holds = (path) => inlined !== null && path in inlined;

/** @param {string} path */
async function fetched(path) {
  const reply = await fetch(`api/${path}`);
  if (reply.status === 404) return null;
  revisions.set(path, reply.headers.get("etag") ?? "");
  return reply.json().catch(() => ({ error: `${path}: ${reply.status} ${reply.statusText}` }));
}

/** The address of a screenshot, or null if the page does not hold it. @param {string} run @param {string} hash */
export function screen(run, hash) {
  const path = `${run}/screen/${hash}.png`;
  return inlined ? inlined[path] ?? null : `api/${path}`;
}

/**
 * Be told when documents changed. Whoever comes late has missed nothing, as documents are whole.
 * @param {string[]} runs
 * @param {(connected: boolean) => void} changed
 */
export function watch(runs, changed) {
  if (inlined) return;
  const wanted = runs.length ? runs.map((run) => `${run}/`) : [""];
  for (const [name, stream] of streams) if (!wanted.includes(name)) { stream.close(); streams.delete(name); }
  for (const name of wanted.filter((name) => !streams.has(name))) {
    const stream = new EventSource(`api/${name}events`);
    let lost = false;
    stream.onmessage = (event) => {
      const news = Object.entries(JSON.parse(event.data)).filter(([key, revision]) => stale(name + key, revision));
      if (news.length || lost) changed(true);
      lost = false;
    };
    stream.onerror = () => { lost = true; changed(false); };
    streams.set(name, stream);
  }
}

/** Forget a document and its parts, if another revision of it was fetched. @param {string} path @param {any} revision */
function stale(path, revision) {
  const parts = { lanes: "lanes/", attempts: "attempt/" }[path.split("/")[1]];
  if (revisions.get(path)?.includes(revision)) return false;
  for (const key of cache.keys()) if (key === path || parts && key.startsWith(path.split("/")[0] + "/" + parts)) cache.delete(key);
  return true;
}
