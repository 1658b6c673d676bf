// The history of one message, from its first check to its end.

import { read } from "../app/api.js";
import { h, toInbox, toMessage, toSearch } from "../app/dom.js";
import { exactly, span, when } from "../app/format.js";
import { command, relayPaths } from "../app/terminal.js";
import { commandBlock } from "../parts/command.js";
import { emptyNote } from "../parts/listing.js";

export const title = "Message";

const SHOWN_CHARS = 20_000;

const KINDS = {
  check: "check", accepted: "stored", rejected: "rejected", leased: "delivered", acked: "acknowledged",
  returned: "returned", failed: "dead letter", expired: "expired", evicted: "evicted", redriven: "redriven",
  queued: "due", cancelled: "cancelled",
};

export function show(main, { path }) {
  const id = path[1];
  const body = h("div", { "aria-busy": "true" }, emptyNote("Reading the journal…"));
  main.append(h("p", { class: "trail" }, h("a", { href: "#/messages" }, "Messages")), h("h1", { tabindex: "-1", class: "name" }, id), body);
  let stopped = false;

  async function run() {
    try {
      const [history] = await Promise.all([read(`/v1/messages/${encodeURIComponent(id)}`), relayPaths().catch(() => null)]);
      if (!stopped) body.replaceChildren(...render(history), commandBlock(command("explain", id)));
    } catch (problem) {
      if (!stopped) body.replaceChildren(unknown(problem, id));
    }
    body.removeAttribute("aria-busy");
  }
  run();
  return () => { stopped = true; };
}

function unknown(problem, id) {
  if (problem.status === 404 || problem.status === 400) {
    return h("div", {}, emptyNote(`No message ${id} in the journal.`),
      h("ul", {}, h("li", {}, "Check the spelling: ids are case-sensitive, with letters, digits, - and _ only."),
        h("li", {}, "A publish rejected by the rate limit has an id, and a history, only if its sender chose the id."),
        h("li", {}, "Journal segments are deleted after their retention; the pipeline's tables may still have it."),
        h("li", {}, h("a", { href: "#/messages" }, "Search by sender, inbox or time"), " instead.")));
  }
  return h("p", { class: "problem", role: "alert" }, problem.message);
}

/** The state that the last step left; the words of `waypost explain`. */
function statusOf({ kind, endpoint, text }) {
  if (kind === "accepted" && !endpoint) return "no endpoint matched";
  if (kind === "accepted" && text.includes(", due at ")) return "scheduled";
  if (kind === "rejected" && text.includes("budget_exceeded")) return "rejected, and kept as a dead letter";
  return KINDS[kind] ?? kind;
}

function render({ steps, thread, parent, payload }) {
  const first = steps[0].at_us;
  const endpoints = [...new Set(steps.map((one) => one.endpoint).filter(Boolean))];
  const last = steps.at(-1);
  return [
    h("p", { class: "lead" }, `Arrived ${when(first)}. Last: `, h("span", { class: `badge ${last.kind}` }, statusOf(last)), ` ${span((last.at_us - first) / 1000)} later.`),
    h("p", {}, "Inboxes: ", endpoints.length ? endpoints.map((one, at) => [at ? ", " : "", h("a", { href: toInbox(one) }, one)]) : "none"),
    ...(thread ? [h("p", {}, "Thread: ", h("a", { href: toSearch({ thread }) }, thread))] : []),
    ...(parent ? [h("p", {}, "Parent: ", h("a", { href: toMessage(parent) }, parent))] : []),
    h("section", {}, h("h2", {}, "Payload"), content(payload, last.kind)),
    h("section", {}, h("h2", {}, "Timeline"), h("ol", { class: "timeline" }, steps.map((one) => step(one, first, endpoints.length > 1))))];
}

/** The payload as text: what an agent wrote is never interpreted. */
function content(payload, kind) {
  if (payload === undefined && kind === "rejected") return emptyNote("The message was rejected, so its payload was not kept.");
  if (payload === undefined) return emptyNote("It is larger than 4 KiB, or was not kept.");
  if (/^sealed-\d$/.test(payload?.waypost)) return emptyNote("It is sealed: only its recipient can open it.");
  const text = JSON.stringify(payload, null, 2);
  return h("pre", { class: "content", tabindex: "0", "aria-label": "Payload" }, text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text);
}

function step(one, first, severalInboxes) {
  return h("li", { class: one.kind },
    h("time", { title: exactly(one.at_us) }, `+${span((one.at_us - first) / 1000)}`),
    h("span", { class: `badge ${one.kind}` }, KINDS[one.kind] ?? one.kind),
    h("span", { class: "text" }, one.text || " ", severalInboxes && one.endpoint ? h("small", {}, one.endpoint) : null));
}
