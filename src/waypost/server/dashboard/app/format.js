// Formats of numbers and times. Every number has its unit; times are in the local time zone.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (n) => whole.format(n);

/** "1 message", "2,000 messages". */
export function plural(n, word, words = `${word}s`) {
  return `${count(n)} ${n === 1 ? word : words}`;
}

/** Short, for axes and tiles: 950, 1.2k, 34k, 5.6M. */
export function compact(n) {
  const size = Math.abs(n);
  if (size >= 1e6) return `${one.format(n / 1e6)}M`;
  if (size >= 1e4) return `${whole.format(n / 1e3)}k`;
  if (size >= 1e3) return `${one.format(n / 1e3)}k`;
  return size >= 10 || Number.isInteger(n) ? whole.format(n) : one.format(n);
}

export const rate = (n) => `${compact(n)}/s`;
export const percent = (share) => `${whole.format(share * 100)}%`;

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    n /= 1024;
    if (n < 1024 || unit === "TiB") return `${n < 10 ? one.format(n) : whole.format(n)} ${unit}`;
  }
  return "";
}

const UNLIMITED = 2 ** 53;

/** A limit of a tier, in the given format; the largest number is no limit. */
export const limit = (n, format) => (n >= UNLIMITED ? "no limit" : format(n));

/** A duration, given in ms. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10) return `${one.format(ms)} ms`;
  if (ms < 1000) return `${whole.format(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? one.format(seconds) : whole.format(seconds)} s`;
  if (seconds < 3600) return `${whole.format(Math.floor(seconds / 60))} min`;
  if (seconds < 2 * 86400) {
    const minutes = Math.floor((seconds % 3600) / 60);
    return `${Math.floor(seconds / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  return `${Math.floor(seconds / 86400)} days`;
}

const timeOfDay = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });

/** The time of day, given in µs since the epoch. */
export const clock = (us) => timeOfDay.format(new Date(us / 1000));

/** Date and time; only the time if it was today. */
export function when(us) {
  const at = new Date(us / 1000);
  const today = day.format(at) === day.format(new Date());
  return today ? timeOfDay.format(at) : `${day.format(at)}, ${timeOfDay.format(at)}`;
}

/** Exact time in UTC, as in the journal and the log. */
export const exactly = (us) => new Date(us / 1000).toISOString().replace("T", " ").replace("Z", " UTC");

/** µs since the epoch of an RFC 3339 text. */
export const microseconds = (text) => Date.parse(text) * 1000;

export const REASONS = {
  rate_limited: "rate limit",
  fanout_exceeded: "too many recipients",
  backpressure: "mailbox full",
  quota_exceeded: "sender quota",
  circuit_open: "breaker open",
  budget_exceeded: "budget exceeded",
  storage_full: "disk full",
  access_denied: "access denied",
  mailbox_unavailable: "mailbox not created",
  partition_unavailable: "partition not available",
};

export const TIERS = { 1: "unknown", 2: "acknowledged", 3: "active" };

export const OUTCOMES = {
  scheduled: "scheduled",
  pending: "pending",
  leased: "leased",
  dead: "dead letter",
  rejected: "rejected",
  acked: "acknowledged",
  expired: "expired",
  cancelled: "cancelled",
  purged: "purged",
  gone: "gone",
};
