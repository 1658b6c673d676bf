// Connected agents: since when, from which address, and their backlog.

import { h, setText, toInbox } from "../app/dom.js";
import { count, plural, span, when } from "../app/format.js";
import { live } from "../app/live.js";
import { Stream } from "../app/stream.js";
import { LiveTable, linkCell } from "../parts/table.js";

export const title = "Agents";

const since = (one) => span((live.nowUs() - one.since_us) / 1000);

const COLUMNS = [
  { name: "subject", label: "Agent", kind: "name", value: (one) => one.subject, cell: linkCell((one) => toInbox(one.subject), (one) => one.subject) },
  { name: "since", label: "Connected", kind: "number", value: (one) => -one.since_us, text: since },
  { name: "at", label: "Since", kind: "wide", value: (one) => one.since_us, text: (one) => when(one.since_us) },
  { name: "address", label: "From", kind: "wide roomy", value: (one) => one.address },
  { name: "receive", label: "Receives", kind: "wide", value: (one) => one.receive, text: (one) => `${one.receive === "push" ? "push" : "pull"}${one.shared ? ", shared" : ""}` },
  { name: "pending", label: "Pending", kind: "number wide", value: (one) => one.pending, text: (one) => count(one.pending) },
  { name: "unconfirmed", label: "Unconfirmed", kind: "number", value: (one) => one.unconfirmed, text: (one) => count(one.unconfirmed) },
  { name: "unsent", label: "Unsent", kind: "number wide", value: (one) => one.unsent, text: (one) => count(one.unsent) },
];

export function show(main) {
  const table = new LiveTable({
    caption: "Connected agents", columns: COLUMNS, key: (one) => one.key, sort: { by: "at", down: true },
    empty: "No agent is connected by WebSocket. Agents that read over HTTP have no connection, so they are not listed.",
  });
  const statusText = h("p", { class: "aside", role: "status" }, " ");
  main.append(h("h1", { tabindex: "-1" }, title), statusText, table.node,
    h("p", { class: "aside" }, "Pending: in the agent's inbox. Unconfirmed: sent, not acknowledged yet. Unsent: in its outbound queue."));
  const stream = new Stream("/v1/live?show=agents", {
    onEvent: (_, news) => {
      if (news.whole) table.replace(news.rows);
      else table.change(news.rows, news.gone);
      const left = news.total - table.rows.size;
      setText(statusText, `${plural(news.total, "connection")}${left > 0 ? `; the first ${count(table.rows.size)} are listed` : ""}`);
    },
  });
  return () => {
    stream.stop();
    table.stop();
  };
}
