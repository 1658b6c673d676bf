// Creating elements. Text always stays text: nothing here parses markup, so content from agents
// is safe to show.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined
    && one !== false).map((one) => (one instanceof Node ? one : String(one))));
  return node;
}

/** Create an element: h("a", {href: "#/"}, "text", node, [more]). */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set the text of an element, only if it differs. */
export function setText(node, text) {
  const words = String(text);
  if (node.textContent !== words) node.textContent = words;
}

/** Set an attribute, only if it differs; null removes it. */
export function setAttr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

/**
 * Call `draw`, which replaces content of `box`. If that takes the focus away, the element with the
 * same name or address gets it, or else the heading of the view: never the start of the page.
 */
export function redraw(box, draw) {
  const before = document.activeElement;
  const had = box.contains(before);
  draw();
  if (!had || (before.isConnected && before.checkVisibility())) return;
  const keys = [(one) => one.getAttribute("aria-label"), (one) => one.getAttribute("href"), (one) => (one.hasAttribute("aria-label") ? null : one.textContent)];
  const those = [...box.querySelectorAll("a, button, [tabindex]")].filter((one) => one.tagName === before.tagName);
  const again = keys.map((key) => key(before) && those.filter((one) => key(one) === key(before))).find((found) => found?.length === 1)?.[0];
  (again ?? document.querySelector("main h1"))?.focus({ preventScroll: true });
}

export const byId = (id) => document.getElementById(id);

/** The address of an inbox, a message or a search. */
export const toInbox = (subject) => `#/inboxes/${encodeURIComponent(subject)}`;
export const toMessage = (id) => `#/messages/${encodeURIComponent(id)}`;
export function toSearch(fields) {
  return `#/messages?${new URLSearchParams(fields)}`;
}
