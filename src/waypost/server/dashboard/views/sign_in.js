// Asking for the operator's token, once.

import { Refusal, read } from "../app/api.js";
import { h, say } from "../app/dom.js";
import { keepToken } from "../app/token.js";
import { commandBlock } from "../parts/command.js";

export const title = "Sign in";

export const WRONG = "That is not the operator token of this relay. It is the one line in DATA_DIR/operator-token, on the machine where the relay runs.";

/** Resolves when the token is good. `problem` says why it is asked for again. */
export function signIn(main, problem = "") {
  return new Promise((resolve) => {
    const input = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false", "aria-describedby": "token-problem" });
    const remember = h("input", { id: "remember", type: "checkbox" });
    const told = h("p", { id: "token-problem", class: "problem", role: "alert" }, problem);
    const button = h("button", { type: "submit", class: "primary" }, "Sign in");

    async function submit(event) {
      event.preventDefault();
      const token = input.value.trim();
      button.disabled = true;
      say(told, "");
      try {
        await read("/v1/rules", {}, { token });
        keepToken(token, remember.checked);
        resolve();
      } catch (failure) {
        const wrong = failure instanceof Refusal && failure.isAboutTheToken;
        say(told, wrong ? WRONG : `The relay cannot be asked now: ${failure.message}.`);
        input.setAttribute("aria-invalid", wrong);
        button.disabled = false;
        input.select();
        input.focus();
      }
    }

    main.replaceChildren(h("div", { class: "sign-in panel" }, h("h1", { tabindex: "-1" }, "Operator token"),
      h("p", {}, "This dashboard is for whoever runs the relay. The token lies in the data directory, readable by its owner only."),
      h("form", { onsubmit: submit }, h("label", { for: "token" }, "Token"), input, told,
        h("label", { class: "check", for: "remember" }, remember, "Remember on this device"),
        h("p", { class: "aside" }, "Otherwise it is forgotten when this tab is closed."),
        h("div", { class: "buttons left" }, button)),
      commandBlock("cat waypost-data/operator-token", "Print it; waypost-data is the data directory unless “waypost serve --data-dir” said otherwise")));
    input.focus();
  });
}
