// Whether the relay answers, and since when it does not; and the problems it tells of itself.

import { byId, h, mark, say } from "./dom.js";
import { clock } from "./format.js";
import { live } from "./live.js";

const WORDS = { live: "Live", away: "Not connected", connecting: "Connecting…" };

export function connectionBanner() {
  const status = byId("status");
  const banner = byId("banner");
  const problems = byId("problems");
  const since = h("span");
  const next = h("span", { "aria-hidden": "true" });
  const retry = h("button", { type: "button", onclick: () => live.stream?.hurry() }, "Try now");
  banner.append(h("p", {}, since, " ", next), retry);
  let told = "";

  function update() {
    say(status, WORDS[live.state] ?? "");
    mark(status, "data-state", live.state);
    const away = live.state === "away" && live.awaySince > 0;
    if (away && banner.hidden) {
      const last = live.last ? ` What you see is from ${clock(live.last.at_us)}.` : "";
      say(since, `The relay does not answer since ${clock(live.awaySince * 1000)}.${last}`);
    }
    banner.hidden = !away;
    document.body.classList.toggle("stale", away);
    const found = live.standing?.problems ?? [];
    const full = live.standing?.storage_full ? ["The disk is full: publishes are refused until there is room."] : [];
    const all = [...full, ...found];
    if (all.join("\n") === told) return;
    told = all.join("\n");
    problems.replaceChildren(...all.map((one) => h("p", {}, one)));
  }

  live.listen(update);
  setInterval(() => {
    if (banner.hidden) return;
    const left = Math.ceil(((live.stream?.retryAt ?? 0) - Date.now()) / 1000);
    say(next, left > 0 ? `Next attempt in ${left} s.` : "Trying…");
  }, 500);
}
