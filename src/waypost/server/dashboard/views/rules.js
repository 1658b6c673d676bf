// Access rules for senders and inboxes. The relay checks a new rule while it is typed.

import { read, send } from "../app/api.js";
import { h, redraw, setText } from "../app/dom.js";
import { count } from "../app/format.js";
import { notice } from "../app/notice.js";
import { command, relayPaths } from "../app/terminal.js";
import { askFirst } from "../parts/dialog.js";
import { emptyNote, plainTable } from "../parts/listing.js";

export const title = "Rules";

const CHECK_AFTER_MS = 350;

export function show(main) {
  const body = h("div", {}, emptyNote("Loading…"));
  const problem = h("p", { class: "problem", role: "alert" });
  const verdict = h("p", { class: "verdict", role: "status" });
  const input = (name, label, hint) => h("div", { class: "field" }, h("label", { for: `rule-${name}` }, label),
    h("input", { id: `rule-${name}`, name, placeholder: hint, required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "rule-verdict" }));
  const save = h("button", { type: "submit", class: "primary", disabled: true }, "Add rule");
  verdict.id = "rule-verdict";
  const form = h("form", { class: "search", onsubmit: add, oninput: later },
    input("from", "From (sender pattern)", "_anonymous"), input("to", "To (inbox pattern)", "agent.billing"),
    h("div", { class: "field" }, h("label", { for: "rule-action" }, "Action"), h("select", { id: "rule-action", name: "action" }, h("option", {}, "deny"), h("option", {}, "allow"))),
    h("div", { class: "field" }, h("label", { for: "rule-priority" }, "Priority"), h("input", { id: "rule-priority", name: "priority", type: "number", value: "0", step: "1" })),
    h("div", { class: "field" }, save));
  main.append(h("h1", { tabindex: "-1" }, title),
    h("p", { class: "lead" }, "Applied from the top, the highest priority first; the first match decides. Without a match, the message is allowed."),
    problem, h("section", {}, body), h("section", {}, h("h2", {}, "Add a rule"), form, verdict));
  relayPaths().catch(() => {});
  let timer = 0;
  let stopped = false;

  const asked = () => {
    const { from, to, action, priority } = Object.fromEntries(new FormData(form));
    return { from: from.trim(), to: to.trim(), action, priority: Number(priority) };
  };

  function later() {
    clearTimeout(timer);
    save.disabled = true;
    timer = setTimeout(check, CHECK_AFTER_MS);
  }

  async function check() {
    const rule = asked();
    if (!rule.from || !rule.to) return setText(verdict, "");
    try {
      const { rules } = await send("POST", "/v1/rules?dry_run=true", rule);
      const at = rules.findIndex((one) => one.from === rule.from && one.to === rule.to && one.priority === rule.priority && !one.fromKey);
      verdict.className = "verdict good";
      setText(verdict, `Valid: it would be rule ${at + 1} of ${count(rules.length)}.`);
      save.disabled = false;
    } catch (failure) {
      verdict.className = "verdict bad";
      setText(verdict, failure.message);
    }
    return undefined;
  }

  async function add(event) {
    event.preventDefault();
    const rule = asked();
    const done = await askFirst({
      title: "Add this rule?", action: "Add",
      body: [h("p", {}, `${rule.action} ${rule.from} → ${rule.to}, priority ${rule.priority}. It takes effect at once and is written to access-rules.json.`)],
      command: () => command("rules", "add", rule.action, rule.from, rule.to, "--priority", String(rule.priority)),
      act: async () => draw(await send("POST", "/v1/rules", rule)),
    });
    if (done) {
      notice("Rule added.");
      form.reset();
      setText(verdict, "");
      save.disabled = true;
    }
  }

  function draw(found) {
    if (stopped) return;
    setText(problem, found.problem);
    redraw(body, () => body.replaceChildren(found.rules.length ? rulesTable(found.rules, draw)
      : emptyNote("No rules: every sender may write to every inbox.")));
  }

  read("/v1/rules").then(draw, (failure) => { if (!stopped) body.replaceChildren(emptyNote(failure.message)); });
  return () => { stopped = true; clearTimeout(timer); };
}

function rulesTable(rules, draw) {
  const numbered = rules.map((rule, at) => ({ ...rule, at: at + 1 }));
  return plainTable("Access rules, in the order of their application", [
    { label: "Tried", kind: "number", cell: (one) => count(one.at) },
    { label: "From", cell: (one) => h("span", {}, h("code", {}, one.from), one.fromKey ? ` with key ${one.fromKey}` : "") },
    { label: "To", cell: (one) => h("code", {}, one.to) },
    { label: "Action", cell: (one) => h("span", { class: `badge ${one.action}` }, one.action) },
    { label: "Priority", kind: "number", cell: (one) => String(one.priority) },
    { label: "Actions", kind: "act", cell: (one) => h("button", { type: "button", "aria-label": `Remove the rule from ${one.from} to ${one.to} with priority ${one.priority}`, onclick: () => askRemove(one, draw) }, "Remove") },
  ], numbered, { shown: false, stacked: true });
}

function askRemove(rule, draw) {
  const key = rule.fromKey ? { fromKey: rule.fromKey } : {};
  const path = `/v1/rules?${new URLSearchParams({ from: rule.from, to: rule.to, priority: rule.priority, ...key })}`;
  return askFirst({
    title: "Remove this rule?", danger: true, action: "Remove",
    body: [h("p", {}, `${rule.action} ${rule.from} → ${rule.to}, priority ${rule.priority}. Messages that it ${rule.action === "deny" ? "denied" : "allowed"} are then decided by the rules below it.`)],
    command: () => command("rules", "remove", rule.from, rule.to, "--priority", String(rule.priority), ...(rule.fromKey ? ["--from-key", rule.fromKey] : [])),
    act: async () => {
      draw(await send("DELETE", path));
      notice("Rule removed.");
    },
  });
}
