// Changes the page so that it looks like a newer rendering of it. What is equal is not touched, so focus,
// opened parts, typed text and selections stay, and screen readers read only what is new.
const OWN = new Set(["open", "data-selected", "data-sorted", "inert"]); // attributes that a person or a script changes

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE && (node.dataset.row || node.id)) || null;
const isKept = (node) => node.nodeType === Node.ELEMENT_NODE && node.hasAttribute("data-keep");
const isOpen = (node) => node.nodeType === Node.ELEMENT_NODE && (node.matches("dialog[open]") || node.querySelector("dialog[open]") !== null);
const isLike = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

// A form that is being sent, an open dialog, and parts that a script draws are left as they are.
function isUntouchable(node) {
  return isKept(node) || (node.nodeName === "DIALOG" && node.open) || node.classList.contains("htmx-request");
}

// A script shows times in the viewer's zone: two of the same moment are equal, whatever their text.
const isSameTime = (old, fresh) =>
  old.nodeName === "TIME" && old.dateTime === fresh.dateTime && old.dataset.form === fresh.dataset.form;

function updateAttributes(old, fresh) {
  if (old.hasAttribute("data-sort")) return; // A script has made it a button.
  for (const { name, value } of [...fresh.attributes]) {
    if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!OWN.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
}

// A list that must not move: the rows that are there change in place.
function updateInPlace(old, fresh, hold) {
  const rows = new Map([...old.children].map((row) => [keyOf(row), row]));
  for (const row of fresh.children) {
    const shown = rows.get(keyOf(row));
    rows.delete(keyOf(row));
    if (!shown) continue;
    shown.inert = false;
    update(shown, row, hold);
  }
  // A list that shows everything has no older page: its other rows are over, and offer nothing any more.
  if (old.dataset.moving === "whole") for (const row of rows.values()) row.inert = true;
}

function updateChildren(old, fresh, hold) {
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  const skipKept = () => {
    while (at && isKept(at) && !keyOf(at)) at = at.nextSibling;
  };
  for (const next of [...fresh.childNodes]) {
    skipKept();
    const key = keyOf(next);
    let match = key ? keyed.get(key) : at && isLike(at, next) ? at : null;
    if (match && match.nodeName !== next.nodeName) match = null;
    if (!match) {
      old.insertBefore(document.importNode(next, true), at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    update(match, next, hold);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    if (!isKept(gone) && !isOpen(gone)) gone.remove();
  }
}

// ``hold(old, fresh)`` says whether a list, an element with data-moving, must not move now.
export function update(old, fresh, hold) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (isUntouchable(old) || isSameTime(old, fresh)) return;
  updateAttributes(old, fresh);
  if (old.hasAttribute("data-moving") && hold(old, fresh)) updateInPlace(old, fresh, hold);
  else updateChildren(old, fresh, hold);
}
