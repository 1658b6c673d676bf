// Command lines for this relay, to run in a terminal.

import { read } from "./api.js";

let paths = null;

/** The directories of the relay, requested once. */
export async function relayPaths() {
  paths ??= await read("/v1/pipeline");
  return paths;
}

export function forgetRelayPaths() {
  paths = null;
}

/** A word quoted for the shell. */
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** A waypost command with the options for this relay. */
export function command(...words) {
  const options = paths
    ? ["--url", location.origin, "--operator-token-file", `${paths.journal}/operator-token`]
    : ["--url", location.origin];
  return ["waypost", ...words, ...options].map(quoted).join(" ");
}
