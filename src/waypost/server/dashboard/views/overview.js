// Overview: what to look at, throughput, latency, pressure and rejections.

import { h, setAttr, setText, toInbox, toSearch } from "../app/dom.js";
import { REASONS, bytes, compact, count, percent, plural, rate, span } from "../app/format.js";
import { live } from "../app/live.js";
import { TimeChart } from "../parts/chart.js";
import { makeFindings } from "../parts/findings.js";
import { gauge } from "../parts/gauge.js";
import { growingList } from "../parts/growing_list.js";
import { emptyNote, plainTable } from "../parts/listing.js";
import { welcome } from "./welcome.js";

const SPANS = [[120, "2 min"], [300, "5 min"], [600, "10 min"]];
const SENDERS_SHOWN = 8;
const RECENT = 10; // samples that tiles are averaged over
const KEY = "waypost.span";

export const title = "Overview";

const sum = (values) => values.reduce((all, one) => all + one, 0);
const rejected = (sample) => sum(Object.values(sample.rejected ?? {}));
const perSecond = (pick) => (sample) => pick(sample) / sample.seconds;
const held = (name) => (sample) => sample[name] ?? 0;

export function show(main) {
  let seconds = Number(sessionStorage.getItem(KEY)) || 300;
  const tiles = makeTiles();
  const charts = makeCharts();
  const reasons = makeReasons();
  const fullest = makeFullest();
  const findings = makeFindings();
  const senders = makeSenders();
  const node = makeNode();
  const welcomePanel = welcome();
  const choice = h("fieldset", { class: "choice" }, h("legend", { class: "unseen" }, "Time shown"),
    SPANS.map(([value, label]) => h("label", {}, h("input", {
      type: "radio", name: "span", value, checked: value === seconds, onchange: () => {
        seconds = value;
        sessionStorage.setItem(KEY, value);
        update();
      } }), h("span", {}, label))));
  const body = h("div", {}, findings.node, tiles.node, h("div", { class: "grid two" },
    charts.map((one) => one.node), reasons.node, fullest.node, senders.node, node.node));
  main.append(h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, title), choice), welcomePanel, body);

  function update() {
    const { samples, standing } = live;
    if (!standing) return;
    const last = live.last;
    const isNew = !standing.fullest.length && !samples.some((one) => one.accepted || rejected(one));
    setAttr(welcomePanel, "hidden", isNew ? null : "");
    setAttr(body, "hidden", isNew ? "" : null);
    setAttr(choice, "hidden", isNew ? "" : null);
    if (!last || isNew) return;
    findings.update(standing.findings);
    tiles.update(samples.slice(-RECENT), last, standing);
    // While the relay is unreachable, the time axis stands still: the lines must stay in view.
    const end = live.state === "live" ? Math.max(last.at_us, live.nowUs() - 1e6) : last.at_us;
    for (const chart of charts) chart.update(samples, end, seconds);
    reasons.update(samples.filter((one) => one.at_us > end - seconds * 1e6), seconds);
    fullest.update(standing);
    senders.update(standing);
    node.update(standing.node);
  }

  const stop = live.listen(update);
  update();
  return () => {
    stop();
    for (const chart of charts) chart.stop();
  };
}

function makeTiles() {
  const tile = (label, href) => {
    const value = h("span", { class: "value" }, "–");
    const note = h("span", { class: "note" }, " ");
    const name = href ? h("a", { href }, label) : label;
    return { value, note, node: h("div", {}, h("dt", {}, name), h("dd", {}, value, note)) };
  };
  const all = {
    accepted: tile("Stored"), delivered: tile("Acknowledged"), rejected: tile("Rejected"),
    wait: tile("Publish to ack"), waiting: tile("Pending", "#/inboxes"), agents: tile("Connections", "#/agents"),
    dead: tile("Dead letters", "#/dead-letters"), pressure: tile("Fullest inbox", "#/inboxes"),
    oldest: tile("Oldest message", "#/inboxes"), stuck: tile("Stuck agents", "#/agents"),
  };
  const node = h("dl", { class: "tiles ten" }, Object.values(all).map((one) => one.node));
  const put = (one, value, note) => { setText(one.value, value); setText(one.note, note); };
  function update(recent, last, standing) {
    const seconds = sum(recent.map((one) => one.seconds));
    const over = (pick) => rate(sum(recent.map(pick)) / seconds);
    put(all.accepted, over(held("accepted")), "on disk, in their inboxes");
    put(all.delivered, over(held("acked")), "by their recipients");
    put(all.rejected, over(rejected), "not stored, with a reason");
    const waited = recent.findLast((one) => one.waits);
    put(all.wait, waited ? span(waited.wait_p50_ms) : "–",
      waited ? `p50; p95 ${span(waited.wait_p95_ms)}` : "no recent acknowledgements");
    const later = last.scheduled ? `${count(last.scheduled)} scheduled, ` : "";
    put(all.waiting, count(last.pending ?? 0), `${later}${count(last.held ?? 0)} leased, ${bytes(last.bytes ?? 0)}`);
    put(all.agents, count(last.connected ?? 0), "of agents, by WebSocket");
    put(all.dead, count(last.dead ?? 0), last.dead ? "kept until redriven or purged" : "none");
    const first = standing.fullest[0];
    put(all.pressure, percent(last.pressure ?? 0), first ? first.subject : "no inboxes");
    const oldest = standing.oldest;
    put(all.oldest, oldest ? span(Math.max(0, live.nowUs() - oldest.oldest_us) / 1000) : "–",
      oldest ? `unacknowledged, ${oldest.subject}` : "nothing pending");
    put(all.stuck, count(last.stuck ?? 0), last.stuck ? "acknowledge nothing" : "none");
    setAttr(all.stuck.node, "data-level", last.stuck ? "stuck" : null);
    setAttr(all.pressure.node, "data-level", level(last.pressure ?? 0, standing.pressure_warning_at));
  }
  return { node, update };
}

const level = (pressure, warningAt) => (pressure >= 1 ? "full" : pressure >= warningAt ? "warned" : null);

function makeCharts() {
  return [
    new TimeChart({
      title: "Throughput", note: "messages per second", words: rate,
      series: [
        { name: "Stored", kind: "stored", value: perSecond(held("accepted")) },
        { name: "Acknowledged", kind: "delivered", value: perSecond(held("acked")) },
        { name: "Rejected", kind: "rejected", value: perSecond(rejected) },
      ],
    }),
    new TimeChart({
      title: "Latency", note: "from publish to acknowledgement", words: span,
      series: [
        { name: "p50", kind: "p50", value: (one) => (one.waits ? one.wait_p50_ms : null) },
        { name: "p95", kind: "p95", value: (one) => (one.waits ? one.wait_p95_ms : null) },
      ],
    }),
    new TimeChart({
      title: "In the relay", note: "messages now", words: compact, least: 4,
      series: [
        { name: "Pending", kind: "stored", value: held("pending") },
        { name: "Leased", kind: "delivered", value: held("held") },
        { name: "Dead", kind: "dead", value: held("dead") },
      ],
    }),
    new TimeChart({
      title: "Pressure", note: "the fullest inbox, as a share of its cap", words: percent, least: 1,
      series: [{ name: "Fullest", kind: "pressure", value: held("pressure") }],
    }),
  ];
}

const widths = () => h("colgroup", {}, h("col", { class: "first" }), h("col"), h("col", { class: "last" }));

function makeReasons() {
  const rows = Object.entries(REASONS).map(([reason, words]) => {
    const bar = h("span", { class: "fill" });
    const number = h("td", { class: "number" });
    const node = h("tr", {}, h("th", { scope: "row" }, words),
      h("td", { class: "wide-bar" }, h("span", { class: "meter rejected", "aria-hidden": "true" }, bar)), number);
    return { reason, bar, number, node };
  });
  const total = h("small");
  const node = h("section", { class: "panel" }, h("h2", { class: "caption" }, "Rejections by reason", total),
    h("table", { class: "bars", "aria-label": "Rejections by reason" }, widths(), h("thead", { class: "unseen" }, h("tr", {}, h("th", { scope: "col" }, "Reason"),
      h("td", {}), h("th", { scope: "col" }, "Publishes"))), h("tbody", {}, rows.map((one) => one.node))));
  function update(samples, seconds) {
    const counts = {};
    for (const sample of samples) {
      for (const [reason, n] of Object.entries(sample.rejected ?? {})) counts[reason] = (counts[reason] ?? 0) + n;
    }
    const most = Math.max(1, ...Object.values(counts));
    setText(total, `${count(sum(Object.values(counts)))} in the last ${seconds / 60} minutes`);
    for (const row of rows) {
      const n = counts[row.reason] ?? 0;
      row.bar.style.width = `${(n / most) * 100}%`;
      setText(row.number, count(n));
      setAttr(row.node, "data-none", n ? null : "");
    }
  }
  return { node, update };
}

function makeFullest() {
  const body = h("tbody");
  const note = h("small");
  const node = h("section", { class: "panel" }, h("h2", { class: "caption" }, "Fullest inboxes", note),
    h("table", { class: "bars", "aria-label": "Fullest inboxes" }, widths(), h("thead", { class: "unseen" }, h("tr", {}, h("th", { scope: "col" }, "Inbox"),
      h("th", { scope: "col" }, "Pressure"), h("th", { scope: "col" }, "Messages"))), body),
    h("p", { class: "aside" }, h("a", { href: "#/inboxes" }, "All inboxes")));
  const rows = [];
  function row(at) {
    if (rows[at]) return rows[at];
    const link = h("a");
    const shown = gauge();
    const number = h("td", { class: "number" });
    const made = { link, shown, number, node: h("tr", {}, h("th", { scope: "row" }, link), h("td", {}, shown), number) };
    rows[at] = made;
    body.append(made.node);
    return made;
  }
  function update(standing) {
    const cap = standing.mailbox_max;
    setText(note, cap ? `of ${plural(cap, "message")} each` : "no cap on messages");
    standing.fullest.forEach((inbox, at) => {
      const one = row(at);
      setAttr(one.link, "href", toInbox(inbox.subject));
      setAttr(one.link, "title", inbox.subject);
      setText(one.link, inbox.subject);
      one.shown.show(inbox.pressure, standing.pressure_warning_at);
      setText(one.number, count(inbox.pending + inbox.scheduled + inbox.leased));
    });
    rows.forEach((one, at) => setAttr(one.node, "hidden", at < standing.fullest.length ? null : ""));
  }
  return { node, update };
}

function makeSenders() {
  const body = h("div");
  const node = h("section", { class: "panel" }, h("h2", { class: "caption" }, "Rejected senders", h("small", {}, "in the last minutes, most rejections first")), body);
  const reasons = (one) => Object.entries(one.reasons).sort((a, b) => b[1] - a[1]).map(([reason, n]) => `${REASONS[reason] ?? reason} ${count(n)}`).join(", ");
  const link = (one) => h("a", { href: toSearch({ sender: one.sender, outcome: "rejected" }) }, one.sender);
  const table = (rows) => plainTable("Rejected senders", [
    { label: "Sender", kind: "name", cell: (one) => (one.sender ? link(one) : "other senders") },
    { label: "Rejected", kind: "number", cell: (one) => count(one.total) },
    { label: "Reasons", cell: reasons },
  ], rows, { shown: false, stacked: true });
  const listed = growingList({ table, one: "sender", many: "senders", size: SENDERS_SHOWN });
  let shown = null;
  function update({ rejections: found, rejected_senders: all }) {
    const text = JSON.stringify([found, all]);
    if (text === shown || body.contains(document.activeElement)) return;
    shown = text;
    listed.update(found, { all });
    body.replaceChildren(found.length ? listed.node : emptyNote("No sender was rejected lately."));
  }
  return { node, update };
}

function makeNode() {
  const facts = Object.fromEntries(["Version", "Uptime", "Disk", "Last sync", "Open files"].map((name) => [name, h("dd")]));
  const node = h("section", { class: "panel" }, h("h2", { class: "caption" }, "Node"),
    h("dl", { class: "facts" }, Object.entries(facts).map(([name, value]) => [h("dt", {}, name), value])));
  function update(found) {
    const ago = (us) => span(Math.max(0, live.nowUs() - us) / 1000);
    setText(facts.Version, found.version);
    setText(facts.Uptime, ago(found.started_us));
    setText(facts.Disk, `${bytes(found.disk_free_bytes)} free of ${bytes(found.disk_total_bytes)}`);
    setText(facts["Last sync"], found.synced_us ? `${ago(found.synced_us)} ago` : "nothing written yet");
    setText(facts["Open files"], `${count(found.open_files)} of ${count(found.open_files_max)}`);
  }
  return { node, update };
}
