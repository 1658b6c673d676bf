// Requests to the relay. The token is sent in a header; error responses are thrown.

import { readToken } from "./token.js";

/** An error response of the relay: `message` for people, `status` and `reason` for programs. */
export class ApiError extends Error {
  constructor(status, error, reason) {
    super(error);
    this.status = status;
    this.reason = reason;
  }

  get isTokenError() {
    return this.status === 401 || (this.status === 403 && this.reason === "forbidden");
  }
}

/** The relay cannot be reached. */
export class Unreachable extends Error {}

let onTokenRejected = () => {};

/** Call `act` when the relay rejects the token. */
export function whenTokenRejected(act) {
  onTokenRejected = act;
}

// The relay may be one partition of several, below a path of its own.
const BASE = location.pathname.replace(/\/$/, "");

export async function ask(path, { method = "GET", body, signal, token = readToken() } = {}) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(BASE + path, { method, headers, body, signal, cache: "no-store" });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Unreachable("the relay cannot be reached");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const text = answer.error || `the relay returned HTTP ${response.status}`;
  const failure = new ApiError(response.status, text, answer.reason || "");
  if (failure.isTokenError) onTokenRejected(failure);
  throw failure;
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
