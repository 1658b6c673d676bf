// A list that begins with one page and grows by "More", up to a bound. Below it stands how many
// are shown of how many.

import { h, redraw, setAttr, setText } from "../app/dom.js";
import { count, plural } from "../app/format.js";

const ROWS_MAX = 2000;

/**
 * `table(rows)` draws the shown rows; `one` and `many` are the noun. `size` rows are shown at
 * first, and as many more each time. `load(cursor)` returns the next page: {rows, next, total}.
 */
export function growingList({ table, one, many, size, load = null }) {
  const body = h("div");
  const status = h("span", { role: "status" });
  const button = h("button", { type: "button", "aria-label": `More ${many}`, onclick: grow }, "More");
  const problem = h("p", { class: "problem", role: "alert" });
  const node = h("div", {}, body, h("p", { class: "more" }, status, button), problem);
  let rows = [];
  let next = "";
  let total = null;
  let shown = size;

  function draw() {
    const visible = Math.min(shown, rows.length);
    const left = Boolean(next) || visible < rows.length;
    redraw(body, () => body.replaceChildren(table(rows.slice(0, visible))));
    setAttr(button, "hidden", left && visible < ROWS_MAX ? null : "");
    setText(status, words(visible, left));
  }

  function words(visible, left) {
    const of = total !== null && total > visible ? `${count(visible)} of ${plural(total, one, many)} shown` : plural(visible, one, many);
    if (visible >= ROWS_MAX && left) return `${of}; a list has no more than ${count(ROWS_MAX)}`;
    return left && total === null ? `${of} shown; there are more` : of;
  }

  async function grow() {
    const before = Math.min(shown, rows.length);
    setText(problem, "");
    try {
      if (before === rows.length) {
        button.disabled = true;
        const page = await load(next);
        rows = [...rows, ...page.rows];
        next = page.next;
        total = page.total ?? total;
      }
      shown += size;
      draw();
      body.querySelectorAll("tbody tr")[before]?.querySelector("a, button")?.focus();
    } catch (failure) {
      setText(problem, failure.message);
    } finally {
      button.disabled = false;
    }
  }

  /** Show these rows; as many of them as were shown before, at least one page. */
  function update(found, { following = "", all = null } = {}) {
    rows = found;
    next = following;
    total = all;
    draw();
  }
  return { node, update };
}
