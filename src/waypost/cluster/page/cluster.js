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
  h("div", { class: "scroll" }, h("table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
    h("tbody", {}, rows))));

const nodeRow = (node) => h("tr", {}, h("th", { scope: "row" }, node.name),
  h("td", {}, h("a", { href: node.address }, node.address)), h("td", { class: "number" }, node.owned));

const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
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
  return h("tr", {}, h("th", { scope: "row" }, link), h("td", {}, partition.owner || "–"),
    h("td", { class: "number" }, partition.epoch), h("td", { class: "number" }, number.format(partition.position)),
    h("td", { class: "number" }, number.format(partition.lag)),
    h("td", { class: "number" }, stored(partition)),
    h("td", {}, partition.leader || "–"), h("td", { class: state === "serving" ? "" : "bad" }, state));
}

function draw(found) {
  const troubled = found.partitions.filter((one) => stateOf(one) !== "serving");
  document.title = `${troubled.length ? `(${troubled.length}) ` : ""}Waypost cluster ${found.cluster}`;
  main.replaceChildren(
    h("h1", { tabindex: "-1" }, `Cluster ${found.cluster}`),
    h("p", {}, troubled.length
      ? `${troubled.length} of ${found.partitions.length} partitions need attention: the last column says why.`
      : `All ${found.partitions.length} partitions are served.`),
    table("Nodes that are alive", [["Node"], ["Address"], ["Partitions", "number"]], found.nodes.map(nodeRow)),
    table("Partitions", [["Partition"], ["Owner"], ["Epoch", "number"], ["Log position", "number"],
      ["Behind here", "number"], ["Stored", "number"], ["Leader of the log"], ["State"]], found.partitions.map(partitionRow)),
    h("p", {}, "The same on the command line: ", h("code", {}, "waypost cluster status"), ". To move a partition: ",
      h("code", {}, "waypost cluster move PARTITION NODE"), "."));
}

async function run() {
  let problem = "";
  for (;;) {
    if (!readToken()) await signIn(main, problem, "/v1/cluster");
    try {
      draw(await read("/v1/cluster"));
      setText(byId("status"), "");
    } catch (failure) {
      if (failure instanceof ApiError && failure.isTokenError) {
        forgetToken();
        problem = WRONG;
        continue;
      }
      setText(byId("status"), failure.message);
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

themeButton(byId("theme"));
run();
