// The page: sign-in, views and the connection.

import * as agents from "../views/agents.js";
import * as breakers from "../views/breakers.js";
import * as deadLetters from "../views/dead_letters.js";
import * as inbox from "../views/inbox.js";
import * as inboxes from "../views/inboxes.js";
import * as message from "../views/message.js";
import * as messages from "../views/messages.js";
import * as overview from "../views/overview.js";
import * as pipeline from "../views/pipeline.js";
import * as rules from "../views/rules.js";
import * as settings from "../views/settings.js";
import { WRONG, signIn } from "../views/sign_in.js";
import { whenTokenRejected } from "./api.js";
import { connectionBanner } from "./banner.js";
import { byId, h, setAttr, setText } from "./dom.js";
import { compact } from "./format.js";
import { live } from "./live.js";
import { forgetRelayPaths } from "./terminal.js";
import { themeButton } from "./theme_button.js";
import { forgetToken, readToken } from "./token.js";

const VIEWS = [
  ["", overview], ["inboxes", inboxes, inbox], ["agents", agents], ["breakers", breakers], ["dead-letters", deadLetters],
  ["messages", messages, message], ["rules", rules], ["settings", settings], ["pipeline", pipeline],
];

const main = byId("main");
const nav = byId("nav");
let leave = () => {};
let asking = false;

// What a link counts, if it is not 0; not part of its name, which must not change while it is read.
const COUNTS = {
  "": () => live.standing?.findings.length,
  inboxes: () => live.last?.inboxes,
  agents: () => live.last?.connected,
  breakers: () => live.breakers.states.filter((one) => one.state !== "CLOSED").length,
  "dead-letters": () => live.last?.dead,
};

const counts = VIEWS.map(() => h("span", { class: "count", "aria-hidden": "true", hidden: true }));
const links = VIEWS.map(([name, view], at) => h("a", { href: `#/${name}` }, view.title, counts[at]));
nav.append(h("ul", {}, links.map((one) => h("li", {}, one))));

/** A part of an address; one that is not encoded properly is taken as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function route({ first = false } = {}) {
  if (asking) return;
  const [before, after = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const path = before.split("/").map(decoded);
  const at = VIEWS.findIndex(([name]) => name === path[0]);
  const [name, list, detail] = VIEWS[at < 0 ? 0 : at];
  const view = detail && path[1] ? detail : list;
  leave();
  links.forEach((link, place) => {
    if (place === Math.max(at, 0)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  links[Math.max(at, 0)].scrollIntoView({ block: "nearest", inline: "nearest" });
  main.replaceChildren();
  document.title = `${view === detail ? path[1] : view.title} · Waypost`;
  const setQuery = (fields) => {
    const search = new URLSearchParams(fields).toString();
    history.replaceState(null, "", `#/${name}${search ? `?${search}` : ""}`);
  };
  leave = view.show(main, { path, query: new URLSearchParams(after), setQuery }) ?? (() => {});
  if (!first) {
    main.querySelector("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

/** Ask for the token, then show the view of the address. */
async function begin(problem = "") {
  if (asking) return;
  asking = true;
  leave();
  leave = () => {};
  live.stop();
  nav.hidden = byId("sign-out").hidden = byId("status").hidden = true;
  byId("banner").hidden = true;
  document.title = "Sign in · Waypost";
  if (problem || !readToken()) await signIn(main, problem);
  asking = false;
  nav.hidden = byId("sign-out").hidden = byId("status").hidden = false;
  live.start();
  route({ first: !problem });
}

whenTokenRejected(() => {
  if (asking) return;
  forgetToken();
  begin(WRONG);
});

byId("sign-out").addEventListener("click", () => {
  forgetToken();
  forgetRelayPaths();
  begin();
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
live.listen(() => VIEWS.forEach(([name], at) => {
  const number = COUNTS[name]?.() ?? 0;
  const isNew = number && counts[at].hidden;
  setAttr(counts[at], "hidden", number ? null : "");
  setText(counts[at], number ? compact(number) : "");
  if (isNew) nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}));
addEventListener("hashchange", () => route());
themeButton(byId("theme"));
connectionBanner();
begin();
