// Where the relay is, for commands that do the same from a terminal.

import { read } from "./api.js";

let facts = null;

/** What the relay says about its directories; asked for once. */
export async function place() {
  facts ??= await read("/v1/pipeline");
  return facts;
}

export function forgetPlace() {
  facts = null;
}

/** A word as a shell takes it. */
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** "waypost dead-letters purge …" for this very relay. */
export function command(...words) {
  const where = facts
    ? ["--url", location.origin, "--operator-token-file", `${facts.journal}/operator-token`]
    : ["--url", location.origin];
  return ["waypost", ...words, ...where].map(quoted).join(" ");
}
