// What is looked at (view, runs, selection) stands in the address, so that a link shows it to somebody else.

/** @typedef {Record<string, string>} State */

/** A run's id as one part of a path. @param {string} id */
export const encoded = (id) =>
  encodeURIComponent(id).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);

/** @returns {State} */
export const current = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** The address of the present state with some of it changed; an empty value is left out. @param {State} changes */
export function link(changes) {
  const entries = Object.entries({ ...current(), ...changes }).filter(([, value]) => value !== "");
  return `#${new URLSearchParams(entries)}`;
}

/** The address of a view of a run, without what was selected in another. @param {string} runs @param {string} view
 * @param {State} [rest] */
export const viewLink = (runs, view, rest = {}) => `#${new URLSearchParams({ runs, view, ...rest })}`;

/** @param {State} changes */
export const go = (changes) => { location.hash = link(changes); };

/** Note the state in the address without drawing the view anew: of a zoom, say. @param {State} changes */
export const note = (changes) => history.replaceState(null, "", link(changes));
