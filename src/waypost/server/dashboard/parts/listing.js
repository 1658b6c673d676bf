// A plain table for short lists, and the note shown instead while it is empty.

import { h } from "../app/dom.js";

/**
 * `columns`: {label, kind, cell(row)} where `cell` returns text or a node. `stacked`: on a phone,
 * each row is a block of lines. Roles are set because such a block is no longer a table. A column of
 * the kind "act" has buttons, which name themselves: its label is for screen readers only.
 */
export function plainTable(caption, columns, rows, { shown = true, stacked = false } = {}) {
  const cell = (row) => (one, at) => h(at ? "td" : "th", {
    scope: at ? null : "row", role: at ? "cell" : "rowheader", class: one.kind ?? "", "data-label": one.kind === "act" ? "" : one.label,
  }, stacked ? h("div", {}, one.cell(row)) : one.cell(row));
  const head = (one) => h("th", { scope: "col", role: "columnheader", class: one.kind ?? "" },
    one.kind === "act" ? h("span", { class: "unseen" }, one.label) : one.label);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { role: "table", class: stacked ? "stacked" : null }, h("caption", { class: shown ? null : "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(head))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, columns.map(cell(row)))))));
}

/** A note in place of an empty list. */
export const emptyNote = (...words) => h("p", { class: "empty" }, ...words);
