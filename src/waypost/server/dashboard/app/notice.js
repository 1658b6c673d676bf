// Short notices at the edge of the page, announced once by screen readers.

import { byId, h } from "./dom.js";

const SHOWN_MS = 8000;

/** Show that an action succeeded, or (kind "bad") that it failed. */
export function notice(text, kind = "good") {
  const close = h("button", { type: "button", class: "quiet", onclick: () => box.remove() }, "Close");
  const box = h("div", { class: `notice ${kind}` }, h("p", {}, text), close);
  byId("notices").append(box);
  if (kind === "good") setTimeout(() => box.remove(), SHOWN_MS);
}
