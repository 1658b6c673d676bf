// Results of the pipeline: its report and the last backtest.

import { ask, read } from "../app/api.js";
import { h } from "../app/dom.js";
import { bytes, when } from "../app/format.js";
import { quoted } from "../app/terminal.js";
import { commandBlock } from "../parts/command.js";
import { emptyNote } from "../parts/listing.js";
import { backtestResult, jobLine } from "../parts/pipeline_job.js";
import { framed } from "../parts/report_frame.js";

export const title = "Pipeline";

export function show(main) {
  const body = h("div", {}, emptyNote("Loading…"));
  main.append(h("h1", { tabindex: "-1" }, title), body);
  const line = jobLine();
  let stopped = false;
  function draw(state) {
    if (!stopped) body.replaceChildren(report(state, line, draw), backtest(state));
  }
  read("/v1/pipeline").then((state) => {
    draw(state);
    if (state.job?.state === "running") line.follow(state.job).then((done) => done && draw(done));
  }, (problem) => { if (!stopped) body.replaceChildren(emptyNote(problem.message)); });
  return () => { stopped = true; line.stop(); };
}

function report(state, line, draw) {
  const run = `waypost pipeline run --journal ${quoted(state.journal)} --lake ${quoted(state.lake)}`;
  const refresh = state.can_start ? h("button", { type: "button", onclick: start }, state.report ? "Refresh the report" : "Create a report") : null;
  async function start() {
    refresh.disabled = true;
    const done = await line.start("/v1/pipeline/report");
    refresh.disabled = false;
    if (done) draw(done);
  }
  if (!state.report) {
    return h("section", {}, h("h2", {}, "Report"), emptyNote("No report yet. The pipeline creates one from the journal, also while this relay runs."),
      h("div", { class: "buttons left" }, refresh), line.nodes, commandBlock(run, "Create it on the command line"));
  }
  const container = h("div");
  const open = h("button", { type: "button", class: "primary", onclick: load }, "Show the report");
  const save = h("button", { type: "button", onclick: download }, "Download");
  async function fetched() {
    return (await ask("/v1/pipeline/report")).text();
  }
  async function load() {
    open.disabled = true;
    try {
      container.replaceChildren(framed(await fetched(), "Report of the pipeline"));
    } catch (problem) {
      open.disabled = false;
      container.replaceChildren(h("p", { class: "problem", role: "alert" }, problem.message));
    }
  }
  async function download() {
    const url = URL.createObjectURL(new Blob([await fetched()], { type: "text/html" }));
    h("a", { href: url, download: "waypost-report.html" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
  return h("section", {}, h("h2", {}, "Report"), h("p", {}, `Written ${when(state.report.at_us)}, ${bytes(state.report.bytes)}.`),
    h("div", { class: "buttons left" }, open, save, refresh), line.nodes, container, commandBlock(run, "Update it on the command line"));
}

function backtest(state) {
  const make = `waypost pipeline backtest --lake ${quoted(state.lake)} --settings new-config.json`;
  const head = h("h2", {}, "Last backtest");
  if (state.problem) return h("section", {}, head, h("p", { class: "problem", role: "alert" }, state.problem), commandBlock(make, "Run it again"));
  if (!state.backtest_file) return h("section", {}, head, emptyNote("No backtest in the lake. A backtest replays all recorded messages under other settings, before you apply them."), commandBlock(make, "Run a backtest"));
  return h("section", {}, head, backtestResult(state.backtest, `Run ${when(state.backtest_file.at_us)}:`),
    commandBlock(make, "Run another backtest"));
}
