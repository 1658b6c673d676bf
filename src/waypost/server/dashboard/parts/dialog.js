// Confirmation of actions that cannot be undone or take effect at once.

import { h } from "../app/dom.js";
import { commandBlock } from "./command.js";

/**
 * Ask for confirmation. `body` are elements, `command()` returns the equivalent command line, `act`
 * does it; if it throws, its message is shown. Resolves to whether the action was done.
 */
export function askFirst({ title, body, command, action, danger = false, act }) {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert" });
    const cancel = h("button", { type: "button", autofocus: danger, onclick: () => end(false) }, "Cancel");
    const go = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const twin = command ? commandBlock(command()) : null;
    const form = h("form", { method: "dialog", onsubmit: submit, oninput: () => twin?.update(command()) },
      h("h2", { id: "dialog-title" }, title), ...body, twin, problem,
      h("div", { class: "buttons" }, cancel, go));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => end(false) }, form);

    async function submit(event) {
      event.preventDefault();
      go.disabled = true;
      problem.textContent = "";
      try {
        await act(form);
        end(true);
      } catch (failure) {
        problem.textContent = failure.message;
        go.disabled = false;
      }
    }

    let ended = false;
    function end(done) {
      if (ended) return;
      ended = true;
      dialog.close();
      dialog.remove();
      resolve(done);
    }

    document.body.append(dialog);
    dialog.showModal();
    if (danger) cancel.focus();
  });
}
