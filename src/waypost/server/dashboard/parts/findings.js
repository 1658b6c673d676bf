// What to look at: each finding with what to do, the command that does it, and its view. An entry
// stays the same element while its text changes, so that it can be pressed, read and copied.

import { h, setAttr, setText } from "../app/dom.js";
import { command, relayPaths } from "../app/terminal.js";
import { copyButton, setCommand } from "./command.js";
import { emptyNote } from "./listing.js";

export function makeFindings() {
  const list = h("ol");
  const none = emptyNote("Nothing needs attention.");
  const node = h("section", { class: "panel findings", "aria-labelledby": "look-at" },
    h("h2", { class: "caption", id: "look-at" }, "What to look at"), none, list);
  const entries = new Map();
  relayPaths().catch(() => {});

  function update(found) {
    const keys = new Set(found.map(keyOf));
    for (const [key, one] of entries) {
      if (keys.has(key)) continue;
      one.node.remove();
      entries.delete(key);
    }
    found.forEach((one, at) => {
      const key = keyOf(one);
      if (!entries.has(key)) entries.set(key, entry(one));
      const made = entries.get(key);
      made.update(one);
      if (list.children[at] !== made.node) list.insertBefore(made.node, list.children[at] ?? null);
    });
    setAttr(none, "hidden", found.length ? "" : null);
    setAttr(list, "hidden", found.length ? null : "");
  }
  return { node, update };
}

const keyOf = (one) => `${one.kind} ${one.subject}`;

function entry(one) {
  const about = one.subject || "the settings";
  const text = h("span", { class: "text" });
  const advice = h("p", { class: "aside" });
  const words = h("code");
  const link = h("a", { "aria-label": `Show ${about}` }, "Show");
  const copy = copyButton(words, `Copy the command for ${about}`);
  const node = h("li", {}, h("p", {}, text, " ", link), advice, h("p", { class: "line" }, words, copy));
  function update(changed) {
    setText(text, changed.text);
    setText(advice, changed.advice);
    setCommand(words, command(...changed.command));
    setAttr(link, "href", changed.link);
  }
  return { node, update };
}
