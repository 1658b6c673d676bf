// Settings: config.json, checked by the relay while it is typed, and its effect.

import { read, send } from "../app/api.js";
import { h, setText } from "../app/dom.js";
import { bytes, limit, plural, span } from "../app/format.js";
import { notice } from "../app/notice.js";
import { command, relayPaths } from "../app/terminal.js";
import { askFirst } from "../parts/dialog.js";
import { emptyNote, plainTable } from "../parts/listing.js";
import { backtestResult, jobLine } from "../parts/pipeline_job.js";

export const title = "Settings";

const CHECK_AFTER_MS = 400;

export function show(main) {
  const body = h("div", {}, emptyNote("Loading…"));
  main.append(h("h1", { tabindex: "-1" }, title),
    h("p", { class: "lead" }, "The relay's config.json. It needs only settings that differ from the defaults; with one invalid value, nothing changes."), body);
  relayPaths().catch(() => {});
  let stopped = false;
  let editor = null;
  Promise.all([read("/v1/config"), read("/v1/pipeline")]).then(([state, pipeline]) => {
    if (stopped) return;
    editor = makeEditor(state, pipeline);
    body.replaceChildren(...editor.nodes);
  }, (problem) => { if (!stopped) body.replaceChildren(emptyNote(problem.message)); });
  return () => { stopped = true; editor?.stop(); };
}

function makeEditor(state, pipeline) {
  let saved = JSON.stringify(state.config, null, 2);
  let inForce = leaves(state.settings);
  let timer = 0;
  const text = h("textarea", { id: "config", rows: 14, spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-describedby": "verdict", oninput: later });
  text.value = saved;
  const verdict = h("p", { id: "verdict", class: "verdict", role: "status" });
  const notes = h("ul", { class: "notes" });
  const changes = h("div");
  const save = h("button", { type: "submit", class: "primary", disabled: true }, "Save…");
  const revert = h("button", { type: "button", disabled: true, onclick: () => { text.value = saved; check(); } }, "Undo changes");
  const line = jobLine();
  const outcome = h("div");
  const replay = pipeline.can_start ? h("button", { type: "button", disabled: true, onclick: backtest }, "What would this change have done?") : null;
  const table = h("div");
  const broken = h("p", { class: "problem", role: "alert" }, state.problem);
  let would = inForce;
  let replaying = false;
  showNotes(state.notes);
  draw();

  function later() {
    clearTimeout(timer);
    save.disabled = true;
    timer = setTimeout(check, CHECK_AFTER_MS);
  }

  async function check() {
    const asked = text.value;
    try {
      const answer = await send("PUT", "/v1/config?dry_run=true", asked);
      if (asked !== text.value) return;
      would = leaves(answer.settings);
      showNotes(answer.notes);
      const different = changed().length;
      verdict.className = "verdict good";
      setText(verdict, different ? `Valid: ${plural(different, "setting")} would change.` : "Valid; no setting would change.");
      save.disabled = asked.trim() === saved.trim();
      allowReplay(different);
    } catch (problem) {
      if (asked !== text.value) return;
      would = inForce;
      showNotes([]);
      verdict.className = "verdict bad";
      setText(verdict, problem.message);
      save.disabled = true;
      allowReplay(false);
    }
    text.setAttribute("aria-invalid", verdict.classList.contains("bad"));
    revert.disabled = asked === saved;
    draw();
  }

  function allowReplay(allowed) {
    if (replay && !replaying) replay.disabled = !allowed;
  }

  async function backtest() {
    replaying = replay.disabled = true;
    outcome.replaceChildren();
    const done = await line.start("/v1/pipeline/backtest", text.value);
    replaying = replay.disabled = false;
    if (done) outcome.replaceChildren(...backtestResult(done.backtest, "Under these settings,").filter(Boolean));
  }

  const changed = () => [...new Set([...inForce.keys(), ...would.keys()])].filter((key) => inForce.get(key) !== would.get(key));

  function showNotes(found) {
    notes.replaceChildren(...found.map((one) => h("li", {}, one)));
  }

  function draw() {
    const rows = [...would.keys()].map((key) => ({ key, now: inForce.get(key) ?? "–", then: would.get(key), differs: inForce.get(key) !== would.get(key) }));
    rows.sort((a, b) => Number(b.differs) - Number(a.differs));
    const columns = [{ label: "Setting", kind: "name", cell: (one) => h("code", {}, one.key) }, { label: "In force", kind: "number", cell: (one) => [one.now, meaning(one.key, one.now)] }];
    if (rows.some((one) => one.differs)) columns.push({ label: "New", kind: "number", cell: (one) => (one.differs ? [h("b", { class: "changed" }, one.then), meaning(one.key, one.then)] : "") });
    table.replaceChildren(plainTable("All settings", columns, rows, { shown: false, stacked: true }));
  }

  async function submit(event) {
    event.preventDefault();
    const asked = text.value;
    const done = await askFirst({
      title: "Save these settings?", action: "Save",
      body: [h("p", {}, "They take effect at once; config.json is replaced."),
        h("ul", { class: "notes plain" }, changed().map((key) => h("li", {}, h("code", {}, key), `: ${inForce.get(key) ?? "–"} → ${would.get(key) ?? "–"}`)))],
      command: () => command("config", "save", "new-config.json"),
      act: async () => {
        const answer = await send("PUT", "/v1/config", asked);
        saved = JSON.stringify(answer.config, null, 2);
        inForce = would = leaves(answer.settings);
        text.value = saved;
        setText(broken, answer.problem);
        showNotes(answer.notes);
      },
    });
    if (!done) return;
    notice("Settings saved.");
    save.disabled = revert.disabled = true;
    setText(verdict, "");
    draw();
  }

  const form = h("form", { class: "editor", onsubmit: submit }, h("label", { for: "config" }, "config.json"), text, verdict, notes, changes,
    h("div", { class: "buttons left" }, save, revert, replay), line.nodes, outcome);
  return {
    nodes: [broken, h("div", { class: "grid two start" }, form, h("section", { class: "in-force" }, h("h2", {}, "In force"), table))],
    stop: () => { clearTimeout(timer); line.stop(); },
  };
}

/** A number of ms or bytes in larger units, and "no limit" for a limit that is switched off. */
function meaning(key, text) {
  const value = Number(text);
  if (!(value >= 1000)) return null;
  if (key.endsWith("Ms")) return h("small", {}, span(value));
  const larger = limit(value, key.endsWith("Bytes") ? bytes : () => "");
  return larger ? h("small", {}, larger) : null;
}

/** All settings by dotted name. */
function leaves(value, prefix = "", found = new Map()) {
  for (const [name, inner] of Object.entries(value)) {
    const key = prefix ? `${prefix}.${name}` : name;
    if (inner !== null && typeof inner === "object" && !Array.isArray(inner) && Object.keys(inner).length) leaves(inner, key, found);
    else found.set(key, JSON.stringify(inner));
  }
  return found;
}
