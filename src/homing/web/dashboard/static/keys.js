// The keyboard: / search, j and k rows, Enter opens, r replays, g goes, ? helps.
const PLACES = { o: "/", e: "/endpoints", d: "/deliveries", v: "/events", s: "/subscriptions" };
let chosen = null; // the id or link of the row, which outlives a refresh
let going = false;

const rows = () => [...document.querySelectorAll("[data-row]")];
const named = (row) => row.dataset.row;

export function markRow() {
  for (const row of rows()) row.toggleAttribute("data-chosen", named(row) === chosen);
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => named(row) === chosen);
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  chosen = named(next);
  markRow();
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (going) {
    going = false;
    if (PLACES[event.key]) location.assign(PLACES[event.key]);
    return;
  }
  const actions = {
    "/": () => document.querySelector("[data-search]")?.focus(),
    "?": () => document.getElementById("help").showModal(),
    j: () => step(1),
    k: () => step(-1),
    g: () => { going = true; },
    r: () => {
      const row = rows().find((one) => named(one) === chosen);
      (row?.querySelector("[data-replay]") || document.querySelector("main [data-replay]"))?.click();
    },
  };
  if (actions[event.key]) {
    actions[event.key]();
    event.preventDefault();
  }
}

export function startKeys() {
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-row]");
    if (!row || event.target.closest("a, button, input, label, summary") || getSelection().toString()) return;
    row.querySelector("a")?.click();
  });
}
