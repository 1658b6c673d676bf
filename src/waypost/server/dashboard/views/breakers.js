// Circuit breakers that are not at rest, and their latest state changes.

import { send } from "../app/api.js";
import { h, redraw, setText, toInbox } from "../app/dom.js";
import { count, exactly, span, when } from "../app/format.js";
import { live } from "../app/live.js";
import { notice } from "../app/notice.js";
import { command, relayPaths } from "../app/terminal.js";
import { askFirst } from "../parts/dialog.js";
import { growingList } from "../parts/growing_list.js";
import { emptyNote, plainTable } from "../parts/listing.js";

export const title = "Breakers";

const SHOWN = 50;

const STATES = { CLOSED: "closed", OPEN: "open", HALF_OPEN: "half open" };
const WORDS = {
  CLOSED: "admits all messages; counts failures",
  OPEN: "rejects messages until probes succeed",
  HALF_OPEN: "admits a few probes",
};

// The cause of a change, with the setting as it is called in config.json.
export const OCCASIONS = {
  "failure_threshold consecutive failures": "failureThreshold consecutive failures",
  "cooldown_ms elapsed": "cooldownMs has passed",
  "success_to_close consecutive successes": "successToClose successful probes in a row",
};

const badge = (state) => h("span", { class: `badge ${state.toLowerCase()}` }, STATES[state]);
const inbox = (name) => h("a", { href: toInbox(name), title: name }, name);

export function show(main) {
  const now = h("div");
  const moves = h("div");
  main.append(h("h1", { tabindex: "-1" }, title),
    h("p", { class: "lead" }, "A circuit breaker opens after consecutive failures of one inbox, rejects its messages, and after a cooldown admits a probe."),
    h("section", {}, h("h2", {}, "Now"), now), h("section", {}, h("h2", {}, "History"), moves));
  relayPaths().catch(() => {});
  const open = growingList({ table: states, one: "breaker", many: "breakers", size: SHOWN });
  const changes = growingList({ table: history, one: "state change", many: "state changes", size: SHOWN });
  let drawn = null;

  function update() {
    const found = live.breakers;
    for (const node of now.querySelectorAll(".next")) node.show();
    if (!live.standing || drawn === found) return;
    drawn = found;
    open.update(found.states, { all: found.total });
    put(now, found.states.length ? open.node : emptyNote("All breakers are closed, without failures."));
    changes.update(found.moves, { all: found.moves.length });
    put(moves, found.moves.length ? changes.node : emptyNote("No breaker has changed its state recently."));
  }

  const stop = live.listen(update);
  update();
  return stop;
}

const put = (box, node) => { if (box.firstChild !== node) redraw(box, () => box.replaceChildren(node)); };

/** A text that changes with time, while its row stays as it is: it can be read and pressed. */
function ticking(text) {
  const node = h("span", { class: "next" });
  node.show = () => setText(node, text());
  node.show();
  return node;
}

function states(rows) {
  const left = (one) => one.opened_at + live.breakers.cooldown_ms - live.nowUs() / 1000;
  const next = (one) => {
    if (one.state === "OPEN") return left(one) > 0 ? `probe in ${span(left(one))}` : "probe with the next message";
    return one.state === "HALF_OPEN" ? `${count(one.probes_in_flight)} in flight, ${count(one.half_open_successes)} succeeded` : "–";
  };
  return plainTable("Breakers that are not at rest", [
    { label: "Inbox", kind: "name", cell: (one) => inbox(one.endpoint) },
    { label: "State", cell: (one) => [badge(one.state), h("small", { class: "wide" }, WORDS[one.state])] },
    { label: "Consecutive failures", kind: "number", cell: (one) => count(one.consecutive_failures) },
    { label: "Next", cell: (one) => ticking(() => next(one)) },
    { label: "Actions", kind: "act", cell: (one) => h("button", { type: "button", "aria-label": `Reset the breaker of ${one.endpoint}`, onclick: () => askReset(one) }, "Reset") },
  ], rows, { shown: false, stacked: true });
}

function askReset(breaker) {
  return askFirst({
    title: "Reset this breaker?", action: "Reset",
    body: [h("p", {}, `The breaker of ${breaker.endpoint} is ${STATES[breaker.state]}. It closes at once and forgets its failures: the next message is admitted without a probe.`)],
    command: () => command("breakers", "reset", breaker.endpoint),
    act: async () => {
      await send("POST", `/v1/breakers/${encodeURIComponent(breaker.endpoint)}/reset`);
      notice("Breaker reset.");
    },
  });
}

function history(moves) {
  return plainTable("State changes, the newest first", [
    { label: "When", cell: (one) => h("time", { title: exactly(one.at_us) }, when(one.at_us)) },
    { label: "Inbox", kind: "name", cell: (one) => inbox(one.endpoint) },
    { label: "From", kind: "wide", cell: (one) => badge(one.before) },
    { label: "To", cell: (one) => badge(one.after) },
    { label: "Because", cell: (one) => OCCASIONS[one.occasion] ?? one.occasion },
  ], moves, { shown: false, stacked: true });
}
