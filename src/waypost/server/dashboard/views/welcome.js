// What to do with a relay in which nothing has happened yet.

import { h } from "../app/dom.js";
import { quoted } from "../app/place.js";
import { commandBlock } from "../parts/command.js";

export function welcome() {
  const url = `WAYPOST_URL=${quoted(location.origin)}`;
  return h("section", { class: "panel welcome", hidden: true },
    h("h2", {}, "The relay is up. Nothing has been sent yet."),
    h("p", {}, "This page comes alive with the first message."),
    h("ol", {},
      h("li", {}, commandBlock(`${url} waypost send agent.billing '{"refund": 12}'`, "Send a message; it waits in the inbox of agent.billing.")),
      h("li", {}, commandBlock(`${url} waypost keys new agent.billing`, "Give an agent its keys.")),
      h("li", {}, commandBlock(`${url} waypost listen agent.billing`, "Connect it: it gets what waited, and then what comes."))),
    h("p", { class: "aside" }, "In a program, agents use the client for Python, or the ",
      h("a", { href: "/docs" }, "HTTP interface"), "."));
}
