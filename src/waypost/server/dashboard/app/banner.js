// The state of the connection, and the problems that the relay reports.

import { byId, h, setAttr, setText } from "./dom.js";
import { clock } from "./format.js";
import { live } from "./live.js";

const STATES = { live: "Live", away: "Not connected", connecting: "Connecting…" };

export function connectionBanner() {
  const status = byId("status");
  const banner = byId("banner");
  const problems = byId("problems");
  const since = h("span");
  const next = h("span", { "aria-hidden": "true" });
  const retry = h("button", { type: "button", onclick: () => live.stream?.retryNow() }, "Retry now");
  banner.append(h("p", {}, since, " ", next), retry);
  let shown = "";

  function update() {
    setText(status, STATES[live.state] ?? "");
    setAttr(status, "data-state", live.state);
    const away = live.state === "away" && live.awaySince > 0;
    if (away && banner.hidden) {
      const last = live.last ? ` The data shown is from ${clock(live.last.at_us)}.` : "";
      setText(since, `The relay has been unreachable since ${clock(live.awaySince * 1000)}.${last}`);
    }
    banner.hidden = !away;
    document.body.classList.toggle("stale", away);
    const found = live.standing?.problems ?? [];
    const full = live.standing?.storage_full ? ["The disk is full: publishes are rejected until there is space."] : [];
    const all = [...full, ...found];
    if (all.join("\n") === shown) return;
    shown = all.join("\n");
    problems.replaceChildren(...all.map((one) => h("p", {}, one)));
  }

  live.listen(update);
  setInterval(() => {
    if (banner.hidden) return;
    const left = Math.ceil(((live.stream?.retryAt ?? 0) - Date.now()) / 1000);
    setText(next, left > 0 ? `Next attempt in ${left} s.` : "Connecting…");
  }, 500);
}
