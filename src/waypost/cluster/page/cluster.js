// The cluster: its nodes, and who owns which partition. Each partition has a dashboard of its own.

import { ApiError, read } from "/dashboard/app/api.js";
import { byId, h, redraw, setText } from "/dashboard/app/dom.js";
import { bytes, clock, count, plural } from "/dashboard/app/format.js";
import { themeButton } from "/dashboard/app/theme_button.js";
import { forgetToken, readToken } from "/dashboard/app/token.js";
import { commandBlock } from "/dashboard/parts/command.js";
import { plainTable } from "/dashboard/parts/listing.js";
import { WRONG, signIn } from "/dashboard/views/sign_in.js";

const EVERY_MS = 2000;
const main = byId("main");
const status = byId("status");
const trouble = byId("problems");

const isNearlyFull = ({ stored_bytes, max_bytes }) => max_bytes > 0 && stored_bytes > 0.8 * max_bytes;
const stored = ({ stored_bytes, max_bytes }) => (max_bytes ? `${bytes(stored_bytes)} of ${bytes(max_bytes)}` : bytes(stored_bytes));

function stateOf(partition) {
  if (partition.problem) return partition.problem;
  if (!partition.owner) return "no owner: a node takes over within seconds";
  if (!partition.is_alive) return `${partition.owner} is gone: a node takes over within seconds`;
  if (isNearlyFull(partition)) return "its stream is nearly full: raise max_bytes";
  if (partition.replicas_behind) return `${partition.replicas_behind} of ${partition.replicas} copies are behind`;
  return "";
}

const badge = (problem, well) => (problem ? h("span", { class: "changed" }, problem) : h("span", { class: "badge alive" }, well));

const nodesTable = (nodes) => plainTable("Nodes that are alive", [
  { label: "Node", kind: "name", cell: (one) => one.name },
  { label: "Address", cell: (one) => h("a", { href: one.address }, one.address) },
  { label: "State", cell: (one) => badge(one.problem, "alive") },
  { label: "Partitions", kind: "number", cell: (one) => count(one.owned) },
], nodes, { shown: false, stacked: true });

function partitionsTable(partitions) {
  const name = (one) => `Partition ${one.number}`;
  return plainTable("Partitions", [
    { label: "Partition", kind: "name", cell: (one) => (one.address ? h("a", { href: `${one.address}/p/${one.number}/` }, name(one)) : name(one)) },
    { label: "Owner", cell: (one) => one.owner || "–" },
    { label: "State", cell: (one) => badge(stateOf(one), "serving") },
    { label: "Epoch", kind: "number", cell: (one) => count(one.epoch) },
    { label: "Log position", kind: "number", cell: (one) => count(one.position) },
    { label: "Behind here", kind: "number", cell: (one) => count(one.lag) },
    { label: "Stored", kind: "number", cell: stored },
    { label: "Leader", cell: (one) => one.leader || "–" },
  ], partitions, { shown: false, stacked: true });
}

/** What needs attention, or that nothing does. */
function summary({ nodes, partitions }) {
  const troubled = partitions.filter(stateOf).length;
  const ill = nodes.filter((one) => one.problem).length;
  if (!troubled && !ill) return `All ${plural(partitions.length, "partition")} are served.`;
  const parts = [troubled ? `${count(troubled)} of ${plural(partitions.length, "partition")}` : "", ill ? `${count(ill)} of ${plural(nodes.length, "node")}` : ""];
  return `${parts.filter(Boolean).join(" and ")} ${troubled + ill === 1 ? "needs" : "need"} attention: the state says why.`;
}

let shown = "";
let drawnAt = 0; // ms by the reader's clock

function draw(found) {
  const text = JSON.stringify(found);
  if (text === shown) return;
  shown = text;
  const troubles = found.partitions.filter(stateOf).length + found.nodes.filter((one) => one.problem).length;
  document.title = `${troubles ? `(${troubles}) ` : ""}Waypost cluster ${found.cluster}`;
  const address = `nats://HOST:4222/${found.cluster}`;
  redraw(main, () => main.replaceChildren(
    h("h1", { tabindex: "-1" }, `Cluster ${found.cluster}`),
    h("p", { class: "lead" }, summary(found)),
    h("section", { class: "panel" }, h("h2", { class: "caption" }, "Nodes that are alive"), nodesTable(found.nodes)),
    h("section", { class: "panel" }, h("h2", { class: "caption" }, "Partitions"), partitionsTable(found.partitions),
      h("p", { class: "aside" }, "Behind here: messages of the log that the node of this page has not copied yet. Leader: the server that leads the log. Epoch: grows whenever the owner changes.")),
    commandBlock(`waypost cluster status ${address}`),
    commandBlock(`waypost cluster move ${address} PARTITION NODE`, "Move a partition to another node")));
}

/** Show whether the data is current, and since when it is not. */
function showConnection(state, problem = "") {
  setText(status, state === "live" ? "Live" : "Not connected");
  status.dataset.state = state;
  document.body.classList.toggle("stale", state !== "live");
  const asOf = shown ? ` The data shown is from ${clock(drawnAt * 1000)}.` : "";
  if (!problem) trouble.replaceChildren();
  else if (!trouble.firstChild) trouble.append(h("p", {}, `The cluster cannot be read: ${problem}.${asOf}`));
}

async function run() {
  let problem = "";
  for (;;) {
    if (!readToken()) {
      shown = "";
      await signIn(main, problem, "/v1/cluster");
    }
    try {
      const found = await read("/v1/cluster");
      drawnAt = Date.now();
      draw(found);
      showConnection("live");
    } catch (failure) {
      if (failure instanceof ApiError && failure.isTokenError) {
        forgetToken();
        problem = WRONG;
        continue;
      }
      showConnection("away", failure.message);
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

themeButton(byId("theme"));
run();
