// Every inbox: how deep, how heavy, how full. One that is opened shows who fills it.

import { h, setText, toInbox } from "../app/dom.js";
import { bytes, count, plural, span } from "../app/format.js";
import { live } from "../app/live.js";
import { Stream } from "../app/stream.js";
import { gauge } from "../parts/gauge.js";
import { LiveTable, linkCell } from "../parts/table.js";

export const title = "Inboxes";

function pressureCell() {
  const node = gauge();
  const show = node.show;
  node.show = (row) => show(row.pressure, live.standing?.pressure_warning_at);
  return node;
}

const age = (one) => (one.oldest_us ? Math.max(0, live.nowUs() - one.oldest_us) : -1);
const agent = (one) => (one.stuck ? "stuck" : one.connected ? "connected" : "disconnected");

const COLUMNS = [
  { name: "subject", label: "Inbox", kind: "name", value: (one) => one.subject, cell: linkCell((one) => toInbox(one.subject), (one) => one.subject) },
  { name: "pressure", label: "Pressure", kind: "number", value: (one) => one.pressure, cell: pressureCell },
  { name: "pending", label: "Pending", kind: "number", value: (one) => one.pending, text: (one) => count(one.pending) },
  { name: "scheduled", label: "Scheduled", kind: "number wide", value: (one) => one.scheduled, text: (one) => count(one.scheduled) },
  { name: "leased", label: "Leased", kind: "number wide", value: (one) => one.leased, text: (one) => count(one.leased) },
  { name: "dead", label: "Dead", kind: "number wide", value: (one) => one.dead, text: (one) => count(one.dead) },
  { name: "bytes", label: "Size", kind: "number wide", value: (one) => one.bytes, text: (one) => bytes(one.bytes) },
  { name: "senders", label: "Senders", kind: "number wide", value: (one) => one.senders, text: (one) => count(one.senders) },
  { name: "oldest", label: "Oldest", kind: "number wide", value: (one) => age(one), text: (one) => (one.oldest_us ? span(age(one) / 1000) : "–") },
  { name: "connected", label: "Agent", kind: "wide roomy", value: (one) => Number(one.connected) + Number(one.stuck), text: agent },
];

export function show(main, { query, setQuery }) {
  const table = new LiveTable({
    caption: "Inboxes", columns: COLUMNS, key: (one) => one.subject, sort: { by: "pending", down: true },
    empty: "No inbox, or none that matches. An inbox is created by the first message to it, or when its agent connects.",
  });
  const statusText = h("p", { class: "aside", role: "status" });
  const input = h("input", { type: "search", id: "filter", placeholder: "agent.billing", value: query.get("filter") ?? "", oninput: () => refilter(), autocomplete: "off", spellcheck: "false" });
  const held = h("input", { type: "checkbox", id: "held", onchange: () => refilter() });
  main.append(h("h1", { tabindex: "-1" }, title),
    h("form", { class: "filters", role: "search", onsubmit: open },
      h("label", { for: "filter" }, "Name contains"), input,
      h("label", { class: "check", for: "held" }, held, "Only inboxes with messages")),
    statusText, table.node);

  /** Open the inbox with this very name, listed or not. */
  function open(event) {
    event.preventDefault();
    if (input.value.trim()) location.hash = toInbox(input.value.trim());
  }

  let total = 0;
  function refilter() {
    const words = input.value.trim().toLowerCase();
    table.filter((one) => one.subject.toLowerCase().includes(words)
      && (!held.checked || one.pending + one.scheduled + one.leased + one.dead > 0));
    setQuery(input.value.trim() ? { filter: input.value.trim() } : {});
    showCount();
  }
  function showCount() {
    const shown = table.order.length;
    const hidden = total - table.rows.size;
    setText(statusText, shown === total ? plural(total, "inbox", "inboxes")
      : `${count(shown)} of ${plural(total, "inbox", "inboxes")}${hidden > 0 ? `; the fullest ${count(table.rows.size)} are listed, Enter opens any other by its whole name` : ""}`);
  }
  refilter();
  const stream = new Stream("/v1/live?show=inboxes", {
    onEvent: (_, news) => {
      total = news.total;
      if (news.whole) table.replace(news.rows);
      else table.change(news.rows, news.gone);
      showCount();
    },
  });
  return () => {
    stream.stop();
    table.stop();
  };
}
