// The cluster: its nodes, and who owns which partition. Each partition has a dashboard of its own.

import { ApiError, read } from "/dashboard/app/api.js";
import { byId, h, setText } from "/dashboard/app/dom.js";
import { themeButton } from "/dashboard/app/theme_button.js";
import { forgetToken, readToken } from "/dashboard/app/token.js";
import { WRONG, signIn } from "/dashboard/views/sign_in.js";

const EVERY_MS = 2000;
const main = byId("main");
const number = new Intl.NumberFormat("en");

const table = (caption, heads, rows) => h("section", { class: "panel" },
  h("h2", { class: "caption" }, caption), h("div", { class: "scroll" }, h("table", { class: "stacked", "aria-label": caption },
    h("thead", {}, h("tr", {}, heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
    h("tbody", {}, rows))));

const cell = (label, content, kind = "") => h("td", { class: kind, "data-label": label }, content);

const nodeRow = (node) => h("tr", {}, h("th", { scope: "row" }, node.name),
  cell("Address", h("a", { href: node.address }, node.address)), cell("Partitions", node.owned, "number"));

const mib = (bytes) => bytes < 2 ** 20 ? `${Math.ceil(bytes / 1024)} KiB` : `${number.format((bytes / 2 ** 20).toFixed(1))} MiB`;
const stored = ({ stored_bytes, max_bytes }) => max_bytes ? `${mib(stored_bytes)} of ${mib(max_bytes)}` : mib(stored_bytes);
const isNearlyFull = ({ stored_bytes, max_bytes }) => max_bytes > 0 && stored_bytes > 0.8 * max_bytes;

function stateOf(partition) {
  if (partition.problem) return partition.problem;
  if (!partition.owner) return "no owner: a node takes over within seconds";
  if (!partition.is_alive) return `${partition.owner} is gone: a node takes over within seconds`;
  if (isNearlyFull(partition)) return "its stream is nearly full: raise max_bytes";
  if (partition.replicas_behind) return `${partition.replicas_behind} of ${partition.replicas} copies are behind`;
  return "serving";
}

function partitionRow(partition) {
  const name = `Partition ${partition.number}`;
  const link = partition.address ? h("a", { href: `${partition.address}/p/${partition.number}/` }, name) : name;
  const state = stateOf(partition);
  const shown = state === "serving" ? h("span", { class: "badge alive" }, state) : h("span", { class: "changed" }, state);
  return h("tr", {}, h("th", { scope: "row" }, link), cell("Owner", partition.owner || "–"), cell("State", shown),
    cell("Epoch", partition.epoch, "number"), cell("Log position", number.format(partition.position), "number"),
    cell("Behind here", number.format(partition.lag), "number"), cell("Stored", stored(partition), "number"),
    cell("Leader", partition.leader || "–"));
}

function draw(found) {
  const troubled = found.partitions.filter((one) => stateOf(one) !== "serving");
  document.title = `${troubled.length ? `(${troubled.length}) ` : ""}Waypost cluster ${found.cluster}`;
  main.replaceChildren(
    h("h1", { tabindex: "-1" }, `Cluster ${found.cluster}`),
    h("p", {}, troubled.length
      ? `${troubled.length} of ${found.partitions.length} partitions need attention: their state says why.`
      : `All ${found.partitions.length} partitions are served.`),
    table("Nodes that are alive", [["Node"], ["Address"], ["Partitions", "number"]], found.nodes.map(nodeRow)),
    table("Partitions", [["Partition"], ["Owner"], ["State"], ["Epoch", "number"],
      ["Log position", "number"], ["Behind here", "number"], ["Stored", "number"], ["Leader of the log"]], found.partitions.map(partitionRow)),
    h("p", {}, "“Behind here” counts the messages of a log that the node of this page has not copied yet."),
    h("p", {}, "The same on the command line: ", h("code", {}, "waypost cluster status CLUSTER"), ". To move a partition: ",
      h("code", {}, "waypost cluster move CLUSTER PARTITION NODE"), "."));
}

async function run() {
  let problem = "";
  for (;;) {
    if (!readToken()) await signIn(main, problem, "/v1/cluster");
    try {
      draw(await read("/v1/cluster"));
      setText(byId("status"), "live");
      byId("status").dataset.state = "live";
    } catch (failure) {
      if (failure instanceof ApiError && failure.isTokenError) {
        forgetToken();
        problem = WRONG;
        continue;
      }
      setText(byId("status"), failure.message);
      byId("status").dataset.state = "away";
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

themeButton(byId("theme"));
run();
