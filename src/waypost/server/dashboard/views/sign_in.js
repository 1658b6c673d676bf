// Sign-in with the operator's token.

import { ApiError, read } from "../app/api.js";
import { h, setText } from "../app/dom.js";
import { keepToken } from "../app/token.js";
import { commandBlock } from "../parts/command.js";

export const title = "Sign in";

export const WRONG = "Wrong operator token. It is the line in DATA_DIR/operator-token on the machine of the relay.";

/** Resolve once the token is valid at `path`. `problem` is the reason for asking again. */
export function signIn(main, problem = "", path = "/v1/rules") {
  return new Promise((resolve) => {
    const input = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false", "aria-describedby": "token-problem" });
    const remember = h("input", { id: "remember", type: "checkbox" });
    const statusText = h("p", { id: "token-problem", class: "problem", role: "alert" }, problem);
    const button = h("button", { type: "submit", class: "primary" }, "Sign in");

    async function submit(event) {
      event.preventDefault();
      const token = input.value.trim();
      button.disabled = true;
      setText(statusText, "");
      try {
        await read(path, {}, { token });
        keepToken(token, remember.checked);
        resolve();
      } catch (failure) {
        const wrong = failure instanceof ApiError && failure.isTokenError;
        setText(statusText, wrong ? WRONG : `The request failed: ${failure.message}.`);
        input.setAttribute("aria-invalid", wrong);
        button.disabled = false;
        input.select();
        input.focus();
      }
    }

    main.replaceChildren(h("div", { class: "sign-in panel" }, h("h1", { tabindex: "-1" }, "Operator token"),
      h("p", {}, "This dashboard is for the operator of the relay. The token is in the data directory, readable by its owner only."),
      h("form", { onsubmit: submit }, h("label", { for: "token" }, "Token"), input, statusText,
        h("label", { class: "check", for: "remember" }, remember, "Remember on this device"),
        h("p", { class: "aside" }, "Otherwise it is deleted when this tab is closed."),
        h("div", { class: "buttons left" }, button)),
      commandBlock("cat waypost-data/operator-token", "Print it; waypost-data is the default data directory of “waypost serve”")));
    input.focus();
  });
}
