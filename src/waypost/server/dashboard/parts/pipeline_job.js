// A job of the pipeline that runs beside the relay: started here, followed until it ends; and the
// result of a backtest.

import { read, send } from "../app/api.js";
import { h, setText } from "../app/dom.js";
import { REASONS, count, plural, span } from "../app/format.js";
import { plainTable } from "./listing.js";

const POLL_MS = 1000;

/**
 * A line with the progress of a job. `start(path, body)` starts one and `follow(job)` shows one that
 * runs; both resolve to the pipeline's state once it is done, or to null if it failed or the view
 * was left.
 */
export function jobLine() {
  const line = h("p", { class: "verdict", role: "status" });
  const output = h("pre", { class: "content", hidden: true });
  let stopped = false;

  async function start(path, body) {
    output.hidden = true;
    return attempt(async () => untilEnd(await send("POST", path, body)));
  }

  async function attempt(act) {
    try {
      return await act();
    } catch (problem) {
      show("bad", problem.message);
      return null;
    }
  }

  async function untilEnd(job) {
    let state = { job };
    while (state.job?.state === "running") {
      show("", `${capitalised(state.job.step || "starting")}… ${span(Math.max(0, Date.now() - state.job.started_us / 1000))}`);
      await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
      if (stopped) return null;
      state = await read("/v1/pipeline");
    }
    if (state.job?.state === "done") {
      show("good", `Done in ${span((state.job.ended_us - state.job.started_us) / 1000)}.`);
      return state;
    }
    show("bad", `The job failed while ${state.job?.step ?? "running"}. It printed:`);
    output.hidden = false;
    setText(output, state.job?.output.trim() || "nothing");
    return null;
  }

  function show(kind, text) {
    line.className = `verdict ${kind}`.trim();
    setText(line, text);
  }

  return { nodes: [line, output], start, follow: (job) => attempt(() => untilEnd(job)), stop: () => { stopped = true; } };
}

const capitalised = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** What a backtest found: a sentence, the decisions that differ by reason, and notes. */
export function backtestResult(found, intro) {
  const rows = Object.entries(found.by_reason ?? {}).flatMap(([then, nows]) => Object.entries(nows ?? {}).map(([now, n]) => ({ then, now, n })));
  const words = (one) => (one === "accepted" ? "stored" : REASONS[one] ?? one);
  return [
    h("p", {}, `${intro} of ${plural(Number(found.messages) || 0, "message")}, ${count(Number(found.differences) || 0)} would have been decided differently.`),
    rows.length ? plainTable("Decided differently", [
      { label: "Recorded", cell: (one) => words(one.then) }, { label: "Under the new settings", cell: (one) => words(one.now) },
      { label: "Messages", kind: "number", cell: (one) => count(Number(one.n) || 0) },
    ], rows) : null,
    (found.notes ?? []).length ? h("ul", { class: "notes plain" }, found.notes.map((one) => h("li", {}, one))) : null,
  ];
}
