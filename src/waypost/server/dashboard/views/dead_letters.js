// Dead letters by reason and inbox; each group opens into its letters. Redriving and purging ask
// first and name the command that does the same.

import { read, send } from "../app/api.js";
import { h, redraw, setText, toInbox, toMessage } from "../app/dom.js";
import { count, exactly, microseconds, plural, when } from "../app/format.js";
import { live } from "../app/live.js";
import { notice } from "../app/notice.js";
import { command, relayPaths } from "../app/terminal.js";
import { askFirst } from "../parts/dialog.js";
import { growingList } from "../parts/growing_list.js";
import { emptyNote, plainTable } from "../parts/listing.js";

const REDRIVE_MAX_IDS = 10_000;
const GROUPS_MAX = 1000;
const GROUPS_SHOWN = 20;
const PAGE = 100;
const PAYLOAD_CHARS = 160;
const AGES = [["", "any age"], ["1h", "older than an hour"], ["1d", "older than a day"], ["7d", "older than 7 days"]];
const AGE_MS = { "1h": 3_600_000, "1d": 86_400_000, "7d": 604_800_000 };

export const title = "Dead letters";

export function show(main, { query }) {
  const endpoint = query.get("endpoint") ?? "";
  const reason = query.get("reason");
  const body = h("div", {}, emptyNote("Loading…"));
  const summary = h("p", { class: "lead" }, " ");
  const purge = h("button", { type: "button", class: "danger", onclick: () => askPurge(endpoint).then(after, (failure) => notice(failure.message, "bad")) }, "Purge…");
  main.append(h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, title), purge),
    ...(endpoint || reason ? [h("p", { class: "trail" }, h("a", { href: "#/dead-letters" }, "All dead letters"))] : []), summary, body);
  relayPaths().catch(() => {});
  let groups = [];
  let known = null;
  let busy = false;
  let stopped = false;

  const put = (nodes) => redraw(body, () => body.replaceChildren(...nodes));

  async function update() {
    if (busy || stopped) return;
    busy = true;
    try {
      const found = await read("/v1/dead-letters", { group: true, limit: GROUPS_MAX, subject: endpoint, reason: reason ?? "" });
      groups = found.groups;
      if (stopped) return;
      redraw(purge.parentElement, () => { purge.hidden = !found.total; });
      const left = found.groups_total > GROUPS_MAX ? ` The ${count(GROUPS_MAX)} largest of ${count(found.groups_total)} groups are listed.` : "";
      setText(summary, found.total ? `${plural(found.total, "dead letter")}${endpoint ? ` of ${endpoint}` : ""}. Kept with their reason until they are redriven, purged or expire.${left}` : "");
      put(!groups.length ? [emptyNote(endpoint || reason ? "No dead letter matches any more." : "No dead letters: every stored message was delivered, is pending, or has expired.")]
        : reason !== null && endpoint ? [await deadLettersOf(groups[0], after)] : byReason(groups, after));
    } catch (problem) {
      if (!stopped && problem.status) put([emptyNote(problem.message)]);
    } finally {
      busy = false;
    }
  }
  const after = (done) => { if (done) update(); };
  const stop = live.listen(() => {
    const now = live.last?.dead ?? 0;
    // Nothing is drawn anew under somebody who is about to press a button in it.
    if (live.last && now !== known && !body.contains(document.activeElement)) {
      known = now;
      update();
    }
  });
  update();
  return () => { stopped = true; stop(); };
}

function byReason(groups, after) {
  const reasons = new Map();
  for (const one of groups) reasons.set(one.reason, [...(reasons.get(one.reason) ?? []), one]);
  return [...reasons].map(([reason, members]) => h("section", { class: "panel" },
    h("h2", { class: "caption" }, reason, h("small", {}, plural(members.reduce((all, one) => all + one.count, 0), "dead letter"))),
    listOf(reason, members, after)));
}

function listOf(reason, members, after) {
  const table = (rows) => plainTable(`Dead letters: ${reason}`, [
    { label: "Inbox", kind: "name", cell: (one) => h("a", { href: toInbox(one.endpoint), title: one.endpoint }, one.endpoint) },
    { label: "Dead letters", kind: "number", cell: (one) => h("a", { href: `#/dead-letters?${new URLSearchParams({ endpoint: one.endpoint, reason })}` }, count(one.count)) },
    { label: "First failed", kind: "wide", cell: (one) => time(one.first_failed_at) },
    { label: "Last failed", kind: "wide", cell: (one) => time(one.last_failed_at) },
    { label: "Actions", kind: "act", cell: (one) => h("button", { type: "button", onclick: () => askRedrive(one.ids, one.endpoint).then(after), "aria-label": `Redrive ${plural(one.count, "dead letter")} of ${one.endpoint}` }, "Redrive") },
  ], rows, { shown: false, stacked: true });
  const listed = growingList({ table, one: "inbox", many: "inboxes", size: GROUPS_SHOWN });
  listed.update(members, { all: members.length });
  return listed.node;
}

async function deadLettersOf(group, after) {
  const load = async (cursor) => {
    const page = await read("/v1/dead-letters", { subject: group.endpoint, reason: group.reason, after: cursor, limit: PAGE });
    return { rows: page.dead_letters, next: page.next, total: page.total };
  };
  const listed = growingList({ table: (rows) => deadLettersTable(group, rows, after), one: "dead letter", many: "dead letters", size: PAGE, load });
  const first = await load("");
  listed.update(first.rows, { following: first.next, all: first.total });
  return h("section", { class: "panel" }, h("h2", { class: "caption" }, group.reason, h("small", {}, `at ${group.endpoint}, the oldest failure first`)),
    h("p", {}, h("button", { type: "button", onclick: () => askRedrive(group.ids, group.endpoint).then(after) }, `Redrive all ${count(group.count)}`)),
    listed.node);
}

const time = (text) => h("time", { title: exactly(microseconds(text)) }, when(microseconds(text)));

function deadLettersTable(group, rows, after) {
  const error = (one) => one.reason.slice(group.reason.length + 2);
  return plainTable(`Dead letters of ${group.endpoint}: ${group.reason}`, [
    { label: "Message", kind: "id", cell: (one) => h("a", { href: toMessage(one.envelope.id) }, one.envelope.id) },
    { label: "From", cell: (one) => one.envelope.sender },
    { label: "Failed", cell: (one) => time(one.failed_at) },
    ...(rows.some(error) ? [{ label: "Error", cell: error }] : []),
    { label: "Payload", kind: "payload wide", cell: (one) => h("code", {}, brief(one.envelope.payload)) },
    { label: "Actions", kind: "act", cell: (one) => h("button", { type: "button", onclick: () => askRedrive([one.envelope.id], group.endpoint).then(after), "aria-label": `Redrive ${one.envelope.id}` }, "Redrive") },
  ], rows, { shown: false, stacked: true });
}

function brief(payload) {
  const text = JSON.stringify(payload) ?? "";
  return text.length > PAYLOAD_CHARS ? `${text.slice(0, PAYLOAD_CHARS)}…` : text;
}

function askRedrive(ids, endpoint) {
  return askFirst({
    title: `Redrive ${plural(ids.length, "dead letter")}?`,
    body: [h("p", {}, `They return to the end of the queue of ${endpoint}. No check is repeated except expiry.`)],
    command: () => command("dead-letters", "redrive", ...ids, "--subject", endpoint),
    action: `Redrive ${count(ids.length)}`,
    act: async () => {
      let done = 0;
      for (let at = 0; at < ids.length; at += REDRIVE_MAX_IDS) {
        const some = ids.slice(at, at + REDRIVE_MAX_IDS);
        done += (await send("POST", "/v1/dead-letters/redrive", { ids: some, subject: endpoint })).redriven;
      }
      const notRedriven = ids.length - done;
      notice(`${plural(done, "dead letter")} redriven.${notRedriven ? ` ${count(notRedriven)} could not be redriven: they no longer exist or cannot be read.` : ""}`, notRedriven ? "bad" : "good");
    },
  });
}

/** A purge knows inboxes and ages, but no reasons: all groups are counted, whatever the view shows. */
async function askPurge(endpoint) {
  const { groups, total } = await read("/v1/dead-letters", { group: true, limit: GROUPS_MAX });
  const names = [...new Set(groups.map((one) => one.endpoint))].sort();
  const which = h("select", { id: "purge-of" }, h("option", { value: "" }, "all inboxes"),
    names.map((one) => h("option", { value: one, selected: one === endpoint }, one)));
  const age = h("select", { id: "purge-age" }, AGES.map(([value, label]) => h("option", { value }, label)));
  const statusText = h("p", { class: "strong" });
  const update = () => {
    const fits = groups.filter((one) => one.endpoint === which.value);
    const counted = which.value ? fits.reduce((all, one) => all + one.count, 0) : total;
    setText(statusText, `${age.value ? "At most " : ""}${plural(counted, "dead letter")} will be deleted permanently, whatever the reason.`);
  };
  which.addEventListener("change", update);
  age.addEventListener("change", update);
  update();
  return askFirst({
    title: "Purge dead letters?",
    danger: true,
    body: [h("div", { class: "fields" }, h("label", { for: "purge-of" }, "Of"), which, h("label", { for: "purge-age" }, "Age"), age), statusText],
    command: () => command("dead-letters", "purge", ...(which.value ? ["--subject", which.value] : []), ...(age.value ? ["--older-than", age.value] : [])),
    action: "Purge",
    act: async () => {
      const asked = { subject: which.value || null, older_than_ms: age.value ? AGE_MS[age.value] : null };
      const { count: gone } = await send("POST", "/v1/dead-letters/purge", asked);
      notice(`${plural(gone, "dead letter")} purged.`);
    },
  });
}
