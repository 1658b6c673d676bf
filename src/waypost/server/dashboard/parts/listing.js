// A plain table for short lists, and what stands in its place while there is nothing.

import { h } from "../app/dom.js";

/**
 * `columns`: {label, kind, cell(row)} where `cell` gives text or a node. `stacked`: on a phone,
 * each row is a block of lines. Roles are named because such a block is no table any more.
 */
export function plainTable(caption, columns, rows, { shown = true, stacked = false } = {}) {
  const cell = (row) => (one, at) => h(at ? "td" : "th", {
    scope: at ? null : "row", role: at ? "cell" : "rowheader", class: one.kind ?? "", "data-label": one.label,
  }, stacked ? h("div", {}, one.cell(row)) : one.cell(row));
  const head = (one) => h("th", { scope: "col", role: "columnheader", class: one.kind ?? "" }, one.label);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { role: "table", class: stacked ? "stacked" : null }, h("caption", { class: shown ? null : "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(head))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, columns.map(cell(row)))))));
}

/** A sentence where a list would be. */
export const nothing = (...words) => h("p", { class: "empty" }, ...words);
