// Lists whose rows move while new ones arrive. A list does not move while somebody is about to click in it,
// reads it or copies from it; a pill says how many new rows wait, and shows them.
import { t, tn } from "./language.js";
import { refresh } from "./live.js";

const CHECK_MS = 400;
const waiting = new Map(); // list -> the number of its new rows
let released = null; // the list whose pill was clicked: it moves once
let timer = null;

const idOf = (row) => row.dataset.row || row.id;
const canHover = () => matchMedia("(hover: hover)").matches;

function isSelectedIn(list) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.rangeCount > 0 && selection.getRangeAt(0).intersectsNode(list);
}

function isInUse(list) {
  if (list === released) return false;
  const box = list.closest(".table-box");
  return (canHover() && list.matches(":hover"))
    || list.contains(document.activeElement)
    || isSelectedIn(list)
    || list.getBoundingClientRect().top < 0 // The first row has been scrolled past.
    || (box !== null && box.scrollTop > 0);
}

function changes(list, fresh) {
  const shown = [...list.children].map(idOf);
  const next = [...fresh.children].map(idOf);
  if (list.hasAttribute("data-sorted")) for (const ids of [shown, next]) ids.sort(); // A person chose the order.
  const known = new Set(shown);
  const added = next.filter((id) => !known.has(id)).length;
  const isOver = list.dataset.moving === "whole" && added === next.length; // Nothing that is shown is left.
  return { added, moved: shown.join() !== next.join() && !isOver };
}

function pillOf(list) {
  const card = list.closest(".card, [data-list]") || list.parentElement;
  let box = card.querySelector(":scope > .pill-box");
  if (box) return box.firstElementChild;
  box = document.createElement("div");
  box.className = "pill-box";
  box.setAttribute("data-keep", "");
  const pill = document.createElement("button");
  pill.type = "button";
  pill.className = "pill";
  pill.addEventListener("click", () => release(list));
  box.append(pill);
  card.prepend(box);
  return pill;
}

function showPill(list, added) {
  const text = added ? tn("{count} new", "{count} new", added) : t("The list has changed");
  const pill = pillOf(list);
  if (pill.textContent !== text) pill.textContent = text;
}

function hidePill(list) {
  (list.closest(".card, [data-list]") || list.parentElement).querySelector(":scope > .pill-box")?.remove();
}

function release(list) {
  released = list;
  getSelection().removeAllRanges();
  document.getElementById("main").focus({ preventScroll: true });
  const card = list.closest(".card") || list;
  if (card.getBoundingClientRect().top < 0) card.scrollIntoView({ block: "start" });
  refresh();
}

// Shows what waits as soon as nobody uses the list any more.
function check() {
  for (const list of waiting.keys()) {
    if (list.isConnected && isInUse(list)) continue;
    waiting.delete(list);
    refresh();
  }
  if (!waiting.size) {
    clearInterval(timer);
    timer = null;
  }
}

// Whether a list must stay as it is, although its newer rendering has other rows.
export function hold(list, fresh) {
  const { added, moved } = changes(list, fresh);
  if (moved && isInUse(list)) {
    waiting.set(list, added);
    showPill(list, added);
    timer ??= setInterval(check, CHECK_MS);
    return true;
  }
  waiting.delete(list);
  hidePill(list);
  if (list === released) released = null;
  return false;
}
