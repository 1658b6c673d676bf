// First steps with a relay that has no messages yet.

import { h } from "../app/dom.js";
import { quoted } from "../app/terminal.js";
import { commandBlock } from "../parts/command.js";

export function welcome() {
  const url = `WAYPOST_URL=${quoted(location.origin)}`;
  return h("section", { class: "panel welcome", hidden: true },
    h("h2", {}, "The relay is running. No message has been sent yet."),
    h("p", {}, "Statistics appear with the first message."),
    h("ol", {},
      h("li", {}, commandBlock(`${url} waypost send agent.billing '{"refund": 12}'`, "Send a message; it is pending in the inbox of agent.billing.")),
      h("li", {}, commandBlock(`${url} waypost keys new agent.billing`, "Create the keys of an agent.")),
      h("li", {}, commandBlock(`${url} waypost listen agent.billing`, "Connect it: it gets pending messages first, then new ones."))),
    h("p", { class: "aside" }, "In a program, agents use the client for Python, or the ",
      h("a", { href: "docs" }, "HTTP API"), "."));
}
