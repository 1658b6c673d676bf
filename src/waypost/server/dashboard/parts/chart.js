// A line chart of the last minutes. The legend shows the value at the pointer, or else the newest;
// the values can be expanded as a table.

import { h, setAttr, s, setText } from "../app/dom.js";
import { clock } from "../app/format.js";
import { marks } from "./scale.js";

const HEIGHT = 168;
const TOP = 8;
const BOTTOM = 22;
const ROWS = 20;

export class TimeChart {
  /** `series`: {name, kind (a class), value(sample)}; `words` turns a value into text. */
  constructor({ title, note, series, words, least = 1 }) {
    Object.assign(this, { title, series, words, least });
    this.values = series.map(() => h("b"));
    this.legend = h("ul", { class: "legend" }, series.map((one, at) => h("li", {},
      s("svg", { viewBox: "0 0 22 10", class: "key", "aria-hidden": "true" },
        s("path", { d: "M1 5H21", class: `line ${one.kind}` })), one.name, " ", this.values[at])));
    this.grid = s("g");
    this.paths = series.map((one) => s("path", { class: `line ${one.kind}` }));
    this.cursor = s("path", { class: "cursor" });
    this.svg = s("svg", { class: "chart", role: "img", height: HEIGHT }, this.grid, ...this.paths, this.cursor);
    this.rows = h("tbody");
    this.details = h("details", { ontoggle: () => this.#list() }, h("summary", {}, "Values as a table"),
      h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("caption", {}, title),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"),
          series.map((one) => h("th", { scope: "col", class: "number" }, one.name)))), this.rows)));
    this.node = h("figure", { class: "panel" },
      h("figcaption", {}, title, note ? h("small", {}, note) : null), this.legend, this.svg, this.details);
    this.svg.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.#point(null));
    this.pointer = null;
    this.drawn = "";
    this.told = 0;
    this.resize = new ResizeObserver(() => this.#draw());
    this.resize.observe(this.svg);
  }

  stop() {
    this.resize.disconnect();
  }

  /** Show these samples; the axis ends at `nowUs` and is `seconds` long. */
  update(samples, nowUs, seconds) {
    this.endUs = nowUs;
    this.seconds = seconds;
    const from = nowUs - seconds * 1e6;
    this.samples = samples.filter((one) => one.at_us >= from);
    this.#draw();
    if (this.details.open) this.#list();
  }

  #draw() {
    const width = this.svg.clientWidth;
    if (!width || !this.samples) return;
    setAttr(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const every = this.series.map((one) => this.samples.map(one.value));
    const ticks = marks(Math.max(0, ...every.flat().filter((one) => one !== null)), 3, this.least);
    const left = Math.max(...ticks.map((one) => this.words(one).length)) * 6.6 + 12;
    const x = (us) => left + (1 - (this.endUs - us) / (this.seconds * 1e6)) * (width - left - 2);
    const y = (value) => TOP + (1 - value / ticks.at(-1)) * (HEIGHT - TOP - BOTTOM);
    Object.assign(this, { x, left });
    this.#axes(ticks, y, width);
    this.paths.forEach((path, at) => setAttr(path, "d", line(this.samples, every[at], x, y)));
    this.#legend();
    this.#describe(every);
  }

  #axes(ticks, y, width) {
    const drawn = `${width} ${ticks.join(" ")} ${this.seconds}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const rows = ticks.map((one) => [
      s("path", { class: one ? "grid" : "axis", d: `M${this.left} ${y(one)}H${width}` }),
      s("text", { x: this.left - 6, y: y(one) + 4, "text-anchor": "end" }, this.words(one))]);
    const parts = width < 420 ? 2 : 5;
    const times = Array.from({ length: parts + 1 }, (_, at) => {
      const place = this.left + (at / parts) * (width - this.left - 2);
      const minutes = (this.seconds * (1 - at / parts)) / 60;
      const anchor = at === 0 ? "start" : at === parts ? "end" : "middle";
      const words = at === parts ? "now" : `−${+minutes.toFixed(1)} min`;
      return s("text", { x: place, y: HEIGHT - 5, "text-anchor": anchor }, words);
    });
    this.grid.replaceChildren(...rows.flat(), ...times);
  }

  #legend() {
    const shown = this.#pointed();
    this.series.forEach((one, at) => {
      const value = shown ? one.value(shown) : null;
      setText(this.values[at], value === null ? "–" : this.words(value));
    });
    setAttr(this.cursor, "d", this.pointer !== null && shown
      ? `M${this.x(shown.at_us)} ${TOP}V${HEIGHT - BOTTOM}` : "M0 0");
    setAttr(this.legend, "data-at", this.pointer !== null && shown ? clock(shown.at_us) : "");
  }

  #pointed() {
    if (this.pointer === null || !this.samples.length) return this.samples.at(-1);
    const distance = (one) => Math.abs(this.x(one.at_us) - this.pointer);
    return this.samples.reduce((best, one) => (distance(one) < distance(best) ? one : best));
  }

  #point(place) {
    this.pointer = place;
    if (this.samples) this.#legend();
  }

  /** The description for screen readers, updated only now and then. */
  #describe(every) {
    if (Date.now() - this.told < 5000) return;
    this.told = Date.now();
    const parts = this.series.map((one, at) => {
      const known = every[at].filter((value) => value !== null);
      if (!known.length) return `${one.name}: no values`;
      return `${one.name}: ${this.words(known.at(-1))} now, at most ${this.words(Math.max(...known))}`;
    });
    setAttr(this.svg, "aria-label",
      `${this.title}, last ${Math.round(this.seconds / 60)} minutes. ${parts.join(". ")}.`);
  }

  #list() {
    if (!this.details.open || !this.samples) return;
    const step = Math.max(1, Math.ceil(this.samples.length / ROWS));
    const some = this.samples.filter((_, at) => (this.samples.length - 1 - at) % step === 0).reverse();
    this.rows.replaceChildren(...some.map((sample) => h("tr", {},
      h("th", { scope: "row" }, clock(sample.at_us)), this.series.map((one) => {
        const value = one.value(sample);
        return h("td", { class: "number" }, value === null ? "–" : this.words(value));
      }))));
  }
}

/** A path with gaps where there is no value, and where samples are missing. */
function line(samples, values, x, y) {
  let path = "";
  let before = null;
  samples.forEach((sample, at) => {
    const value = values[at];
    if (value === null) {
      before = null;
      return;
    }
    const joined = before !== null && sample.at_us - before < 5e6;
    const place = `${x(sample.at_us).toFixed(1)} ${y(value).toFixed(1)}`;
    path += joined ? `L${place}` : `M${place}h0.01`;
    before = sample.at_us;
  });
  return path || "M0 0";
}
