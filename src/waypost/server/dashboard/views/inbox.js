// One inbox: how full it is, whose messages fill it, by sender and by tier, and the card of its agent.

import { read } from "../app/api.js";
import { h, setAttr, setText, toSearch } from "../app/dom.js";
import { TIERS, bytes, count, limit, microseconds, percent, plural, span, when } from "../app/format.js";
import { live } from "../app/live.js";
import { command, relayPaths } from "../app/terminal.js";
import { commandBlock } from "../parts/command.js";
import { gauge } from "../parts/gauge.js";
import { emptyNote, plainTable } from "../parts/listing.js";
import { LiveTable, linkCell } from "../parts/table.js";

const EVERY_MS = 2000;
const SENDERS_SHOWN = 200;
const SENDERS_MAX = 2000;

export const title = "Inbox";

const TIER_NOTES = {
  1: "never got a message from this recipient",
  2: "got a message from this recipient before",
  3: "both exchanged messages recently",
};

export function show(main, { path }) {
  const subject = path[1];
  const body = h("div", {}, emptyNote("Loading…"));
  main.append(h("p", { class: "trail" }, h("a", { href: "#/inboxes" }, "Inboxes")),
    h("h1", { tabindex: "-1", class: "name" }, subject), body);
  let parts = null;
  let stopped = false;
  let timer = 0;

  async function update() {
    try {
      const detail = await read(`/v1/endpoints/${encodeURIComponent(subject)}/usage`, { senders: parts?.wanted() ?? SENDERS_SHOWN });
      if (stopped) return;
      if (!parts) {
        parts = build(subject, () => { clearTimeout(timer); update(); });
        body.replaceChildren(...parts.nodes);
        relayPaths().then(() => parts.twin.update(command("inbox", subject)), () => {});
      }
      parts.update(detail);
    } catch (problem) {
      if (stopped) return;
      if (problem.status && problem.status !== 404 && problem.status !== 400) {
        if (!parts) body.replaceChildren(h("p", { class: "problem", role: "alert" }, problem.message));
      } else if (problem.status) {
        parts = null;
        body.replaceChildren(emptyNote(`No inbox ${subject}: the subject is not registered and has no messages. An inbox is created by the first message to it, or when its agent connects.`));
      }
    }
    if (!stopped) timer = setTimeout(update, EVERY_MS);
  }
  update();
  return () => {
    stopped = true;
    clearTimeout(timer);
    parts?.senders.stop();
  };
}

function fact(label) {
  const value = h("span", { class: "value" }, "–");
  const note = h("span", { class: "note" }, " ");
  return { node: h("div", {}, h("dt", {}, label), h("dd", {}, value, note)), put: (a, b) => { setText(value, a); setText(note, b); } };
}

/** What the agent says about itself, and its key; hidden for a name that has never connected. */
function card(subject) {
  const list = h("dl", { class: "facts" });
  const node = h("section", { hidden: true }, h("h2", {}, "Agent"), list,
    h("p", { class: "aside" }, "The agent wrote this itself; the relay has checked only the key."));
  read(`/v1/agents/${encodeURIComponent(subject)}`).then((found) => {
    const facts = { Description: found.description || "–", Skills: found.skills.join(", ") || "–", Version: found.version || "–",
      Requests: found.accepts_requests ? "accepted" : "not answered", Key: h("code", {}, found.public_key),
      "Last seen": found.connected ? "connected" : found.last_seen ? when(microseconds(found.last_seen)) : "not since the relay started" };
    list.append(...Object.entries(facts).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    node.hidden = false;
  }, () => {});
  return node;
}

function build(subject, refresh) {
  const facts = { waiting: fact("Pending"), leased: fact("Leased"), size: fact("Size"), dead: fact("Dead letters"), agent: fact("Agent"), oldest: fact("Oldest message") };
  const full = gauge();
  const tiers = h("div");
  let statusText = "";
  const senders = new LiveTable({
    caption: "Senders", kind: "few", key: (one) => one.sender, sort: { by: "bytes", down: true }, empty: "No pending messages, so no senders.",
    columns: [
      { name: "sender", label: "Sender", kind: "name", value: (one) => one.sender, cell: linkCell((one) => toSearch({ sender: one.sender, endpoint: subject }), (one) => one.sender) },
      { name: "tier", label: "Tier", value: (one) => one.tier, text: (one) => `${one.tier} ${TIERS[one.tier]}` },
      { name: "messages", label: "Messages", kind: "number", value: (one) => one.messages, text: (one) => count(one.messages) },
      { name: "bytes", label: "Size", kind: "number wide", value: (one) => one.bytes, text: (one) => bytes(one.bytes) },
      { name: "quota", label: "Quota used", kind: "number wide", value: (one) => one.quota, cell: quotaCell },
    ],
  });
  let wanted = SENDERS_SHOWN;
  const shown = h("span", { role: "status" });
  const more = h("button", { type: "button", "aria-label": "More senders", hidden: true, onclick: () => {
    wanted = Math.min(wanted + SENDERS_SHOWN, SENDERS_MAX);
    refresh();
  } }, "More");
  const twin = commandBlock(command("inbox", subject), "Show its messages on the command line");
  const nodes = [
    h("div", { class: "pressure-line" }, h("span", {}, "Pressure"), full),
    h("dl", { class: "tiles six" }, Object.values(facts).map((one) => one.node)),
    h("p", {}, h("a", { href: toSearch({ endpoint: subject }) }, "Its messages"), " · ",
      h("a", { href: `#/dead-letters?${new URLSearchParams({ endpoint: subject })}` }, "Its dead letters")),
    h("section", {}, h("h2", {}, "By tier"), tiers),
    h("section", {}, h("h2", {}, "By sender"), senders.node, h("p", { class: "more" }, shown, more)), card(subject), twin];

  function update(detail) {
    full.show(detail.pressure, live.standing?.pressure_warning_at);
    const later = detail.scheduled ? `${count(detail.scheduled)} scheduled, ` : "";
    facts.waiting.put(count(detail.pending), later + (detail.messages_max ? `cap ${count(detail.messages_max)}` : "no cap"));
    facts.leased.put(count(detail.leased), "not acknowledged yet");
    facts.size.put(bytes(detail.bytes), detail.bytes_max ? `cap ${bytes(detail.bytes_max)}` : "no cap");
    facts.dead.put(count(detail.dead), detail.dead ? "kept with reasons" : "none");
    facts.agent.put(detail.stuck ? "stuck" : detail.connected ? "connected" : "disconnected", detail.registered ? "registered" : "not registered");
    facts.oldest.put(detail.oldest_us ? span((detail.at_us - detail.oldest_us) / 1000) : "–", detail.oldest_us ? "not acknowledged" : "nothing pending");
    const limits = Object.fromEntries(detail.tiers.map((one) => [one.tier, one]));
    if (statusText !== JSON.stringify(detail.tiers)) tiers.replaceChildren(tierTable(detail.tiers));
    statusText = JSON.stringify(detail.tiers);
    senders.replace(detail.senders.map((one) => ({ ...one, quota: quotaOf(one, limits[one.tier]) })));
    const all = plural(detail.senders_total, "sender");
    const left = detail.senders_total - detail.senders.length;
    setText(shown, left > 0 ? `${count(detail.senders.length)} of ${all} shown, those with the most bytes` : detail.senders_total ? all : "");
    setAttr(more, "hidden", left > 0 && wanted < SENDERS_MAX ? null : "");
  }
  return { nodes, update, twin, senders, wanted: () => wanted };
}

function tierTable(tiers) {
  const each = (one) => (one.max_messages === null ? "quotas are off" : `${limit(one.max_messages, (n) => plural(n, "message"))}, ${limit(one.max_bytes, bytes)}`);
  return plainTable("Messages by tier", [
    { label: "Tier", cell: (one) => [`${one.tier} ${TIERS[one.tier]}`, h("small", {}, TIER_NOTES[one.tier])] },
    { label: "Senders", kind: "number", cell: (one) => count(one.senders) },
    { label: "Messages", kind: "number", cell: (one) => count(one.messages) },
    { label: "Size", kind: "number", cell: (one) => bytes(one.bytes) },
    { label: "Quota per sender", kind: "number", cell: each },
  ], tiers, { shown: false, stacked: true });
}

function quotaOf(sender, limits) {
  if (!limits || limits.max_messages === null) return 0;
  const share = (used, most) => (most ? used / most : 1);
  return Math.max(share(sender.messages, limits.max_messages), share(sender.bytes, limits.max_bytes));
}

function quotaCell() {
  const node = h("span");
  node.show = (row) => setText(node, percent(row.quota));
  return node;
}
