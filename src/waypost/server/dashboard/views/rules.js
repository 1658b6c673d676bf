// Access rules: who may write to whom. A new rule is checked by the relay while it is typed.

import { read, send } from "../app/api.js";
import { h, say } from "../app/dom.js";
import { count } from "../app/format.js";
import { notice } from "../app/notice.js";
import { command, place } from "../app/place.js";
import { askFirst } from "../parts/dialog.js";
import { nothing, plainTable } from "../parts/listing.js";

export const title = "Rules";

const CHECK_AFTER_MS = 350;

export function show(main) {
  const body = h("div", {}, nothing("Asking…"));
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
    h("p", { class: "lead" }, "Tried from the top; the first that fits decides. If none fits, the message is allowed. The highest priority comes first."),
    problem, body, h("section", {}, h("h2", {}, "Add a rule"), form, verdict));
  place().catch(() => {});
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
    if (!rule.from || !rule.to) return say(verdict, "");
    try {
      const { rules } = await send("POST", "/v1/rules?dry_run=true", rule);
      const at = rules.findIndex((one) => one.from === rule.from && one.to === rule.to);
      verdict.className = "verdict good";
      say(verdict, `A good rule: it would be tried as number ${at + 1} of ${count(rules.length)}.`);
      save.disabled = false;
    } catch (refusal) {
      verdict.className = "verdict bad";
      say(verdict, refusal.message);
    }
    return undefined;
  }

  async function add(event) {
    event.preventDefault();
    const rule = asked();
    const done = await askFirst({
      title: "Add this rule?", action: "Add it",
      body: [h("p", {}, `${rule.action} ${rule.from} → ${rule.to}, priority ${rule.priority}. It holds from then on, and is written to access-rules.json.`)],
      command: () => command("rules", "add", rule.action, rule.from, rule.to, "--priority", String(rule.priority)),
      act: async () => draw(await send("POST", "/v1/rules", rule)),
    });
    if (done) {
      notice("The rule holds.");
      form.reset();
      say(verdict, "");
      save.disabled = true;
    }
  }

  function draw(found) {
    if (stopped) return;
    say(problem, found.problem);
    body.replaceChildren(found.rules.length ? rulesTable(found.rules, draw)
      : nothing("No rules: everyone may write to everyone."));
  }

  read("/v1/rules").then(draw, (refusal) => { if (!stopped) body.replaceChildren(nothing(refusal.message)); });
  return () => { stopped = true; clearTimeout(timer); };
}

function rulesTable(rules, draw) {
  const numbered = rules.map((rule, at) => ({ ...rule, at: at + 1 }));
  return plainTable("Access rules, in the order in which they are tried", [
    { label: "Tried", kind: "number", cell: (one) => count(one.at) },
    { label: "From", cell: (one) => h("code", {}, one.from) },
    { label: "To", cell: (one) => h("code", {}, one.to) },
    { label: "Action", cell: (one) => h("span", { class: `badge ${one.action}` }, one.action) },
    { label: "Priority", kind: "number", cell: (one) => String(one.priority) },
    { label: "", kind: "act", cell: (one) => h("button", { type: "button", "aria-label": `Remove the rule from ${one.from} to ${one.to}`, onclick: () => askRemove(one, draw) }, "Remove") },
  ], numbered, { shown: false, stacked: true });
}

function askRemove(rule, draw) {
  const path = `/v1/rules?${new URLSearchParams({ from: rule.from, to: rule.to })}`;
  return askFirst({
    title: "Remove this rule?", danger: true, action: "Remove it",
    body: [h("p", {}, `${rule.action} ${rule.from} → ${rule.to}, priority ${rule.priority}. What it ${rule.action === "deny" ? "denied is allowed" : "allowed is decided"} by the rules below it from then on.`)],
    command: () => command("rules", "remove", rule.from, rule.to),
    act: async () => {
      draw(await send("DELETE", path));
      notice("The rule is gone.");
    },
  });
}
