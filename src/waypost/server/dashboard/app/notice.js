// Short news at the edge of the page, read out once by screen readers.

import { byId, h } from "./dom.js";

const SHOWN_MS = 8000;

/** Say that something was done, or (kind "bad") that it was not. */
export function notice(text, kind = "good") {
  const close = h("button", { type: "button", class: "quiet", onclick: () => box.remove() }, "Close");
  const box = h("div", { class: `notice ${kind}` }, h("p", {}, text), close);
  byId("notices").append(box);
  if (kind === "good") setTimeout(() => box.remove(), SHOWN_MS);
}
