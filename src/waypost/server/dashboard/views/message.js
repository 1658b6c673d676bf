// The story of one message, from the first check to its end.

import { read } from "../app/api.js";
import { h, toInbox } from "../app/dom.js";
import { exactly, span, when } from "../app/format.js";
import { command, place } from "../app/place.js";
import { commandBlock } from "../parts/command.js";
import { nothing } from "../parts/listing.js";

export const title = "Message";

const KINDS = {
  check: "check", accepted: "accepted", rejected: "rejected", leased: "handed out", acked: "acknowledged",
  returned: "returned", failed: "dead letter", expired: "expired", evicted: "evicted", redriven: "put back",
};

export function show(main, { path }) {
  const id = path[1];
  const body = h("div", { "aria-busy": "true" }, nothing("Reading the journal…"));
  main.append(h("p", { class: "trail" }, h("a", { href: "#/messages" }, "Messages")), h("h1", { tabindex: "-1", class: "name" }, id), body);
  let stopped = false;

  async function run() {
    try {
      const [story] = await Promise.all([read(`/v1/messages/${encodeURIComponent(id)}`), place().catch(() => null)]);
      if (!stopped) body.replaceChildren(...tell(story.steps), commandBlock(command("explain", id)));
    } catch (problem) {
      if (!stopped) body.replaceChildren(unknown(problem, id));
    }
    body.removeAttribute("aria-busy");
  }
  run();
  return () => { stopped = true; };
}

function unknown(problem, id) {
  if (problem.status === 404) {
    return h("div", {}, nothing(`The journal knows no message ${id}.`),
      h("ul", {}, h("li", {}, "Check the id for typing mistakes: ids are case-sensitive."),
        h("li", {}, "A publish that the rate limit refused has no id, and so no story."),
        h("li", {}, "Segments past their retention are dropped; the pipeline's tables may still know it."),
        h("li", {}, h("a", { href: "#/messages" }, "Search by sender, inbox or time"), " instead.")));
  }
  return h("p", { class: "problem", role: "alert" }, problem.message);
}

function tell(steps) {
  const first = steps[0].at_us;
  const endpoints = [...new Set(steps.map((one) => one.endpoint).filter(Boolean))];
  const last = steps.at(-1);
  return [
    h("p", { class: "lead" }, `Arrived ${when(first)}. Last: `, h("span", { class: `badge ${last.kind}` }, KINDS[last.kind] ?? last.kind), ` ${span((last.at_us - first) / 1000)} later.`),
    h("p", {}, "Inboxes: ", endpoints.length ? endpoints.map((one, at) => [at ? ", " : "", h("a", { href: toInbox(one) }, one)]) : "none"),
    h("section", {}, h("h2", {}, "Timeline"), h("ol", { class: "timeline" }, steps.map((one) => step(one, first, endpoints.length > 1))))];
}

function step(one, first, severalInboxes) {
  return h("li", { class: one.kind },
    h("time", { title: exactly(one.at_us) }, `+${span((one.at_us - first) / 1000)}`),
    h("span", { class: `badge ${one.kind}` }, KINDS[one.kind] ?? one.kind),
    h("span", { class: "text" }, one.text || " ", severalInboxes && one.endpoint ? h("small", {}, one.endpoint) : null));
}
