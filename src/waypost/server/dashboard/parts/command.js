// A command line to copy, with the same effect as the page.

import { h } from "../app/dom.js";

/** Show a command in an element; its words are not broken at their hyphens. */
export function setCommand(code, text) {
  if (code.textContent === text) return;
  code.replaceChildren(...text.split(" ").flatMap((word, at) => [at ? " " : "", h("span", { class: "word" }, word)]));
}

/** A button that copies the text of an element; `label` describes it if several are in view. */
export function copyButton(code, label = null) {
  const button = h("button", { type: "button", class: "quiet", "aria-label": label, onclick: copy }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }
  return button;
}

/** A command with a copy button; `label` describes it. */
export function commandBlock(text, label = "The same on the command line") {
  const code = h("code");
  setCommand(code, text);
  const block = h("div", { class: "command" },
    h("p", { class: "aside" }, label), h("div", { class: "line" }, h("pre", { tabindex: "0" }, code), copyButton(code)));
  block.update = (changed) => setCommand(code, changed);
  return block;
}
