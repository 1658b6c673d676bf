// The pipeline's report inside the page: in a frame of its own where no script can run. This page
// forbids styles inside documents, and its frames inherit that; so the report's own style is taken
// out and applied as a style sheet object, which is not text in a document.

import { h } from "../app/dom.js";

// The only code where text becomes markup. The input is the report of the operator's own pipeline,
// shown in a frame without scripts.
const policy = globalThis.trustedTypes?.createPolicy("waypost-report", { createHTML: (text) => text });
const trusted = (text) => (policy ? policy.createHTML(text) : text);

export function framed(html, title) {
  const styles = [];
  const bare = html.replace(/<style>([^]*?)<\/style>/g, (_, text) => {
    styles.push(text);
    return "";
  });
  const report = new DOMParser().parseFromString(trusted(bare), "text/html");
  for (const one of report.querySelectorAll("script, link")) one.remove();
  const frame = h("iframe", { title, sandbox: "allow-same-origin", class: "report" });
  frame.addEventListener("load", () => dress(frame, styles));
  frame.srcdoc = trusted(`<!doctype html>${report.documentElement.outerHTML}`);
  return frame;
}

function dress(frame, styles) {
  const inner = frame.contentDocument;
  inner.adoptedStyleSheets = styles.map((text) => {
    const sheet = new frame.contentWindow.CSSStyleSheet();
    sheet.replaceSync(text);
    return sheet;
  });
  const fit = () => { frame.style.height = `${inner.documentElement.scrollHeight + 2}px`; };
  new ResizeObserver(fit).observe(inner.body);
  fit();
}
