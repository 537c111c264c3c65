// Keyboard shortcuts: ⌘K, Ctrl-K and / find anything, j and k move between rows, Enter opens a row, r replays,
// g and a letter opens a page, ? lists all shortcuts.
const PAGES = { o: "/", i: "/incidents", e: "/endpoints", d: "/deliveries", v: "/events", s: "/subscriptions" };
let selected = null; // the id of the selected row: the row itself is replaced by a refresh
let goPressed = false; // g was pressed: the next letter opens a page

const rows = () => [...document.querySelectorAll("[data-row]")];
const idOf = (row) => row.dataset.row;

export function markRow() {
  for (const row of rows()) row.toggleAttribute("data-selected", idOf(row) === selected);
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => idOf(row) === selected);
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  selected = idOf(next);
  markRow();
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

function find() {
  const field = document.querySelector("[data-find]");
  field?.focus();
  field?.select();
}

function pressed(event) {
  const isK = event.key.toLowerCase() === "k" && !event.altKey && !event.shiftKey;
  if (isK && (event.metaKey || event.ctrlKey) && !document.querySelector("dialog[open]")) {
    find();
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (goPressed) {
    goPressed = false;
    if (PAGES[event.key]) location.assign(PAGES[event.key]);
    return;
  }
  const actions = {
    "/": find,
    "?": () => document.getElementById("help").showModal(),
    j: () => step(1),
    k: () => step(-1),
    g: () => { goPressed = true; },
    r: () => {
      const row = rows().find((one) => idOf(one) === selected);
      (row?.querySelector("[data-replay]") || document.querySelector("main [data-replay]"))?.click();
    },
  };
  if (actions[event.key]) {
    actions[event.key]();
    event.preventDefault();
  }
}

// A click anywhere in a row opens it.
export function startRows() {
  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-row]");
    if (!row || event.target.closest("a, button, dialog, input, label, pre, summary") || getSelection().toString()) return;
    row.querySelector("a")?.click();
  });
}

export function startKeys() {
  if (/Mac|iPhone|iPad/.test(navigator.platform)) {
    for (const key of document.querySelectorAll("[data-modifier]")) key.textContent = "⌘";
  }
  document.addEventListener("keydown", pressed);
  startRows();
}
