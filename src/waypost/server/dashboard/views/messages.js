// Search for messages by id, thread, sender, inbox, outcome and time.

import { read } from "../app/api.js";
import { h, toInbox, toMessage, toSearch } from "../app/dom.js";
import { OUTCOMES, bytes, count, exactly, plural, when } from "../app/format.js";
import { growingList } from "../parts/growing_list.js";
import { emptyNote, plainTable } from "../parts/listing.js";

export const title = "Messages";

const PAGE = 100;
const AGES = [["", "any time"], ["1", "the last minute"], ["15", "the last 15 minutes"], ["60", "the last hour"], ["1440", "the last day"]];

export function show(main, { query }) {
  const field = (name, label, placeholder) => h("div", { class: "field" }, h("label", { for: `by-${name}` }, label),
    h("input", { id: `by-${name}`, name, value: query.get(name) ?? "", placeholder, autocomplete: "off", spellcheck: "false" }));
  const select = (name, label, options) => h("div", { class: "field" }, h("label", { for: `by-${name}` }, label),
    h("select", { id: `by-${name}`, name }, options.map(([value, words]) => h("option", { value, selected: value === (query.get(name) ?? "") }, words))));
  const results = h("div", { "aria-busy": "true" }, emptyNote("Searching…"));
  const form = h("form", { class: "search", role: "search", onsubmit: search },
    field("id", "Message id", "01JCQ7Z0…"), field("thread", "Thread", "first message id"), field("sender", "Sender", "agent.>"), field("endpoint", "Inbox", "agent.billing"),
    select("outcome", "Outcome", [["", "any"], ...Object.entries(OUTCOMES).filter(([one]) => one !== "gone")]), select("minutes", "Arrived", AGES),
    h("div", { class: "field" }, h("button", { type: "submit", class: "primary" }, "Search")));
  main.append(h("h1", { tabindex: "-1" }, title), form, h("section", {}, h("h2", { class: "unseen" }, "Results"), results));
  let stopped = false;
  const controller = new AbortController();

  function search(event) {
    event.preventDefault();
    const given = [...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
    const asked = Object.fromEntries(given);
    if (asked.id) location.hash = toMessage(asked.id);
    else {
      const wanted = `#/messages?${new URLSearchParams({ ...asked, at: Date.now() })}`;
      location.hash = wanted;
    }
  }

  async function run() {
    const minutes = Number(query.get("minutes"));
    const asked = Object.fromEntries(["thread", "sender", "endpoint", "outcome"].map((name) => [name, query.get(name) ?? ""]));
    if (minutes) asked.since_us = Math.round((Date.now() - minutes * 60_000) * 1000);
    const load = (after) => read("/v1/messages", { ...asked, after, limit: PAGE }, { signal: controller.signal });
    try {
      const found = await load("");
      if (!stopped) results.replaceChildren(...list(found, asked.thread, load));
    } catch (problem) {
      if (!stopped) results.replaceChildren(h("p", { class: "problem", role: "alert" }, problem.message));
    }
    results.removeAttribute("aria-busy");
  }
  run();
  return () => { stopped = true; controller.abort(); };
}

function list(found, thread, load) {
  const far = thread ? `Messages of the thread ${thread} that are still in the journal, at any age.` : found.since_us ? `Messages that left their inbox, and rejections, were searched back to ${when(found.since_us)}. Pending and dead messages are found at any age; for older ones search by id, or in the pipeline's tables.` : "Only messages that are in the relay now were searched.";
  if (!found.messages.length) return [emptyNote("No message matches. A sender or inbox may be a pattern: agent.> is everything under agent."), h("p", { class: "aside" }, far)];
  const listed = growingList({
    one: "message", many: "messages", size: PAGE, table: messagesTable,
    load: async (after) => {
      const page = await load(after);
      return { rows: page.messages, next: page.next };
    },
  });
  listed.update(found.messages, { following: found.next });
  return [listed.node, h("p", { class: "aside" }, "The newest first. ", far)];
}

function messagesTable(rows) {
  return plainTable("Messages found", [
      { label: "Arrived", cell: (one) => h("time", { title: exactly(one.at_us) }, when(one.at_us)) },
      { label: "Message", kind: "id", cell: (one) => (one.id ? h("a", { href: toMessage(one.id) }, one.id) : "no id: rejected before it got one") },
      { label: "From", cell: (one) => h("a", { href: toSearch({ sender: one.sender }) }, one.sender) },
      { label: "To", cell: (one) => h("a", { href: toInbox(one.endpoint) }, one.endpoint) },
      { label: "Outcome", cell: (one) => [h("span", { class: `badge ${one.outcome}` }, OUTCOMES[one.outcome], one.count > 1 ? ` × ${count(one.count)}` : ""), one.reason ? h("small", {}, one.outcome === "pending" ? `returned: ${one.reason}` : one.reason) : null] },
      { label: "Size", kind: "number wide", cell: (one) => bytes(one.bytes) },
    ], rows, { shown: false, stacked: true });
}
