// Asking the relay. The token goes in a header; answers that are refusals become errors.

import { readToken } from "./token.js";

/** The relay said no: `message` in its own words, `status` and `reason` for programs. */
export class Refusal extends Error {
  constructor(status, error, reason) {
    super(error);
    this.status = status;
    this.reason = reason;
  }

  get isAboutTheToken() {
    return this.status === 401 || (this.status === 403 && this.reason === "forbidden");
  }
}

/** The relay did not answer at all. */
export class Away extends Error {}

let onTokenRefused = () => {};

/** Whom to tell when the token is not good (any more). */
export function whenTokenRefused(act) {
  onTokenRefused = act;
}

export async function ask(path, { method = "GET", body, signal, token = readToken() } = {}) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body, signal, cache: "no-store" });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Away("the relay does not answer");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const text = said.error || `the relay answered with ${response.status}`;
  const refusal = new Refusal(response.status, text, said.reason || "");
  if (refusal.isAboutTheToken) onTokenRefused(refusal);
  throw refusal;
}

export async function read(path, query = {}, options = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(given).toString();
  return (await ask(search ? `${path}?${search}` : path, options)).json();
}

export async function send(method, path, value) {
  const body = typeof value === "string" ? value : JSON.stringify(value);
  return (await ask(path, { method, body: value === undefined ? undefined : body })).json();
}
