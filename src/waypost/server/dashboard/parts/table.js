// A table that can be sorted and filtered, for very many rows that change all the time: only rows
// in view are in the page, and their cells are updated. While the pointer or the focus is in the
// table, rows keep their order.

import { h, setAttr, setText } from "../app/dom.js";
import { plural } from "../app/format.js";

const BEYOND = 8; // rows rendered above and below the visible ones
const RESORT_MS = 3000;

export class LiveTable {
  /**
   * `columns`: {name, label, kind, value(row), cell?()} where `cell` makes a node with `show(row)`;
   * without it the text is `text(row)` or the value. One without `value` cannot be sorted by.
   * `key(row)` identifies a row.
   * On a phone, rows of the kind "tall" have several lines, all the same number.
   */
  constructor({ caption, columns, key, empty, sort, kind = "" }) {
    Object.assign(this, { columns, key, sort });
    this.rows = new Map();
    this.order = [];
    this.shown = new Map();
    this.spare = [];
    this.sortedAt = 0;
    this.keep = () => true;
    this.heads = columns.map((one) => this.#head(one));
    this.above = h("tr", { class: "space", "aria-hidden": "true" }, h("td"));
    this.below = this.above.cloneNode(true);
    this.body = h("tbody", {}, this.above, this.below);
    this.table = h("table", { class: `live ${kind}` }, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.empty = h("p", { class: "empty" }, empty);
    this.box = h("div", { class: "scroll window", tabindex: "0", role: "region", "aria-label": caption,
      onscroll: () => this.#draw() }, this.table);
    this.node = h("div", { class: "listing" }, this.box, this.empty);
    this.resize = new ResizeObserver(() => this.#draw());
    this.resize.observe(this.box);
    this.#showSort();
  }

  stop() {
    this.resize.disconnect();
  }

  /** Replace all rows. */
  replace(rows) {
    this.rows = new Map(rows.map((row) => [this.key(row), row]));
    this.arrange(true);
  }

  /** Update some rows and remove others. */
  change(rows, gone = []) {
    let moved = gone.length > 0;
    for (const name of gone) this.rows.delete(name);
    for (const row of rows) {
      moved ||= !this.rows.has(this.key(row));
      this.rows.set(this.key(row), row);
    }
    this.arrange(moved);
  }

  filter(keep) {
    this.keep = keep;
    this.arrange(true, true);
  }

  /** Sort after additions and removals, or when it is due; never while the table is in use. */
  arrange(changed = false, asked = false) {
    const due = performance.now() - this.sortedAt > RESORT_MS;
    if (asked || (!this.#busy() && (changed || due))) this.#sortRows();
    else if (changed) this.#appendNew();
    this.#draw();
  }

  get summary() {
    const of = this.order.length === this.rows.size ? "" : ` of ${plural(this.rows.size, "row")}`;
    return `${plural(this.order.length, "row")}${of}`;
  }

  #busy() {
    return this.box.matches(":hover") || this.body.contains(document.activeElement);
  }

  #sortRows() {
    const column = this.columns.find((one) => one.name === this.sort.by);
    const sign = this.sort.down ? -1 : 1;
    const rows = [...this.rows.values()].filter(this.keep).map((row) => [column.value(row), this.key(row)]);
    rows.sort(([a, p], [b, q]) => (a < b ? -sign : a > b ? sign : p < q ? -1 : 1));
    this.order = rows.map(([, name]) => name);
    this.sortedAt = performance.now();
  }

  #appendNew() {
    const known = new Set(this.order);
    this.order = this.order.filter((name) => this.rows.has(name));
    for (const [name, row] of this.rows) if (!known.has(name) && this.keep(row)) this.order.push(name);
  }

  #draw() {
    const count = this.order.length;
    const hadFocus = this.box.contains(document.activeElement);
    setAttr(this.empty, "hidden", count ? "" : null);
    setAttr(this.box, "hidden", count ? null : "");
    setAttr(this.table, "aria-rowcount", count + 1);
    if (!count && hadFocus) document.querySelector("main h1")?.focus({ preventScroll: true });
    if (!count) return;
    const height = this.rowHeight || 37;
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - BEYOND);
    const last = Math.min(count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + BEYOND);
    for (const [at, row] of this.shown) {
      if (at < first || at >= last) {
        row.remove();
        this.spare.push(row);
        this.shown.delete(at);
      }
    }
    let before = this.above;
    for (let at = first; at < last; at += 1) {
      const row = this.shown.get(at) ?? this.spare.pop() ?? this.#makeRow();
      this.shown.set(at, row);
      this.#fill(row, at);
      if (before.nextSibling !== row) before.after(row);
      before = row;
    }
    // The focus of a row that is gone, or out of view, stays in the table.
    if (hadFocus && !this.box.contains(document.activeElement)) this.box.focus({ preventScroll: true });
    this.#space(this.above, first * height);
    this.#space(this.below, (count - last) * height);
    const real = this.shown.get(first)?.offsetHeight;
    if (real && real !== this.rowHeight) {
      this.rowHeight = real;
      this.#draw();
    }
  }

  #space(row, pixels) {
    const height = `${pixels}px`;
    if (row.firstChild.style.height !== height) row.firstChild.style.height = height;
    setAttr(row, "hidden", pixels ? null : "");
  }

  #makeRow() {
    const cells = this.columns.map((column, at) => {
      const made = column.cell?.();
      const cell = h(at ? "td" : "th", { class: column.kind ?? "", scope: at ? null : "row" }, made ?? "");
      cell.made = made;
      return cell;
    });
    const row = h("tr", {}, cells);
    row.cells_ = cells;
    return row;
  }

  #fill(row, at) {
    const value = this.rows.get(this.order[at]);
    if (!value) return;
    setAttr(row, "aria-rowindex", at + 2);
    this.columns.forEach((column, place) => {
      const cell = row.cells_[place];
      if (cell.made) cell.made.show(value);
      else {
        const words = (column.text ?? column.value)(value);
        setText(cell, words);
        if (column.kind?.includes("roomy")) setAttr(cell, "title", words);
      }
    });
  }

  #head(column) {
    if (!column.value) return h("th", { scope: "col", class: column.kind ?? "" }, h("span", { class: "sort" }, column.label));
    const button = h("button", { type: "button", class: "sort", onclick: () => {
      const down = this.sort.by === column.name ? !this.sort.down : column.kind?.includes("number") ?? false;
      this.sort = { by: column.name, down };
      this.#showSort();
      this.arrange(true, true);
    } }, column.label);
    return h("th", { scope: "col", class: column.kind ?? "" }, button);
  }

  #showSort() {
    this.columns.forEach((column, at) => {
      const mine = column.name === this.sort.by;
      setAttr(this.heads[at], "aria-sort", mine ? (this.sort.down ? "descending" : "ascending") : null);
    });
  }
}

/** A cell that is a link: `href(row)` and `text(row)`. */
export function linkCell(href, text) {
  return () => {
    const link = h("a");
    link.show = (row) => {
      setAttr(link, "href", href(row));
      setAttr(link, "title", text(row));
      setText(link, text(row));
    };
    return link;
  };
}
