// Connected agents: since when, from which address, and their backlog. Stuck ones can be
// disconnected, and their leases released.

import { send } from "../app/api.js";
import { h, setAttr, setText, toInbox } from "../app/dom.js";
import { count, plural, span } from "../app/format.js";
import { live } from "../app/live.js";
import { notice } from "../app/notice.js";
import { Stream } from "../app/stream.js";
import { command, relayPaths } from "../app/terminal.js";
import { askFirst } from "../parts/dialog.js";
import { LiveTable, linkCell } from "../parts/table.js";

export const title = "Agents";

const since = (one) => span((live.nowUs() - one.since_us) / 1000);

const path = (name, action) => `/v1/agents/${encodeURIComponent(name)}/${action}`;

function stateCell() {
  const node = h("span");
  node.show = (one) => {
    setAttr(node, "class", `badge ${one.stuck_since_us ? "stuck" : "alive"}`);
    setText(node, one.stuck_since_us ? `stuck ${span((live.nowUs() - one.stuck_since_us) / 1000)}` : "alive");
  };
  return node;
}

function actCell() {
  let name = "";
  let shared = false;
  const release = h("button", { type: "button", onclick: () => askRelease(name) }, "Release");
  const disconnect = h("button", { type: "button", onclick: () => askDisconnect(name, shared) }, "Disconnect");
  const node = h("span", {}, release, " ", disconnect);
  node.show = (one) => {
    name = one.subject;
    shared = one.shared;
    setAttr(release, "aria-label", `Release the leases of ${name}`);
    setAttr(disconnect, "aria-label", `Disconnect ${name}`);
  };
  return node;
}

function askRelease(name) {
  return askFirst({
    title: "Release its leases?", action: "Release",
    body: [h("p", {}, `All messages that ${name} has not acknowledged return to its queue. It gets no more until it acknowledges or extends one.`)],
    command: () => command("agents", "release", name),
    act: async () => {
      const { count: released } = await send("POST", path(name, "release"));
      notice(`${plural(released, "message")} released.`);
    },
  });
}

function askDisconnect(name, shared) {
  const ends = shared ? `All connections of ${name} end: each worker of the pool,` : `The connection of ${name} ends,`;
  return askFirst({
    title: "Disconnect this agent?", action: "Disconnect", danger: true,
    body: [h("p", {}, `${ends} and its unacknowledged messages return to the queue. It may connect again.`)],
    command: () => command("agents", "disconnect", name),
    act: async () => {
      await send("POST", path(name, "disconnect"));
      notice("Agent disconnected.");
    },
  });
}

const COLUMNS = [
  { name: "subject", label: "Agent", kind: "name", value: (one) => one.subject, cell: linkCell((one) => toInbox(one.subject), (one) => one.subject) },
  { name: "state", label: "State", kind: "state", value: (one) => one.stuck_since_us || Infinity, cell: stateCell },
  { name: "since", label: "Connected", kind: "number wide since", value: (one) => -one.since_us, text: since },
  { name: "address", label: "From", kind: "wide roomy", value: (one) => one.address },
  { name: "receive", label: "Mode", kind: "wide mode", value: (one) => one.receive, text: (one) => `${one.receive === "push" ? "push" : "pull"}${one.shared ? ", shared" : ""}` },
  { name: "pending", label: "Pending", kind: "number wide", value: (one) => one.pending, text: (one) => count(one.pending) },
  { name: "unconfirmed", label: "In flight", kind: "number wide", value: (one) => one.unconfirmed, text: (one) => count(one.unconfirmed) },
  { name: "unsent", label: "Unsent", kind: "number wide", value: (one) => one.unsent, text: (one) => count(one.unsent) },
  { name: "act", label: "Actions", kind: "act", cell: actCell },
];

export function show(main) {
  const table = new LiveTable({
    caption: "Connected agents", kind: "tall", columns: COLUMNS, key: (one) => one.key, sort: { by: "state", down: false },
    empty: "No agent is connected by WebSocket. Agents that read over HTTP have no connection, so they are not listed.",
  });
  const statusText = h("p", { class: "aside", role: "status" }, " ");
  relayPaths().catch(() => {});
  main.append(h("h1", { tabindex: "-1" }, title), statusText, table.node,
    h("p", { class: "aside" }, h("span", { class: "wide" }, "Pending: in the agent's inbox. In flight: sent, not acknowledged yet. Unsent: in its outbound queue. "),
      "Stuck: it acknowledges nothing, so its messages are pending again."));
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
