// Making elements. Text only ever becomes text: nothing here reads markup, so what agents
// wrote can be shown as it is.

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

/** An element: h("a", {href: "#/"}, "text", node, [more]). */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set an element's text, touching the page only if it changes. */
export function say(node, text) {
  const words = String(text);
  if (node.textContent !== words) node.textContent = words;
}

/** Set an attribute, touching the page only if it changes; null takes it away. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

export const byId = (id) => document.getElementById(id);

/** A link to one inbox, one message, or one search. */
export const toInbox = (subject) => `#/inboxes/${encodeURIComponent(subject)}`;
export const toMessage = (id) => `#/messages/${encodeURIComponent(id)}`;
export function toSearch(fields) {
  return `#/messages?${new URLSearchParams(fields)}`;
}
