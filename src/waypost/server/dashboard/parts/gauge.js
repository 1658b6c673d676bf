// The pressure of an inbox: a bar and a number. A full inbox is also labelled in words, so that no
// information depends on colour alone.

import { h, setAttr, setText } from "../app/dom.js";
import { percent } from "../app/format.js";

export function gauge() {
  const bar = h("span", { class: "fill" });
  const number = h("span", { class: "share" });
  const node = h("span", { class: "gauge" }, h("span", { class: "track", "aria-hidden": "true" }, bar), number);
  node.show = (pressure, warningAt = 0.8) => {
    const width = `${Math.round(Math.min(pressure, 1) * 1000) / 10}%`;
    if (bar.style.width !== width) bar.style.width = width;
    const level = pressure >= 1 ? "full" : pressure >= warningAt ? "warned" : "calm";
    setAttr(node, "data-level", level);
    setText(number, level === "full" ? "full" : percent(pressure));
  };
  return node;
}
