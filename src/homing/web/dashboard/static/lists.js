// Lists: a click on the name of a column sorts the rows of this page, and a view of a list can be kept under a name.
import { readNumber, t } from "./language.js";

const KEY = "homing-views";
const VIEWS_MAX = 30; // of one list
const sorted = new Map(); // the id of a list or its path -> { column, down }

function valueOf(cell) {
  const time = cell?.querySelector("time");
  if (time) return Date.parse(time.dateTime);
  const text = cell?.textContent.trim() ?? "";
  const number = readNumber(text);
  return Number.isNaN(number) ? text.toLowerCase() : number;
}

function compare(one, other) {
  if (typeof one === typeof other) return one < other ? -1 : one > other ? 1 : 0;
  return typeof one === "number" ? -1 : 1;
}

const nameOf = (table) => table.closest("[id]")?.id || "list";

function apply(table) {
  const order = sorted.get(nameOf(table));
  const body = table.tBodies[0];
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  if (!order || !body) return;
  table.tHead.rows[0].cells[order.column]?.setAttribute("aria-sort", order.down ? "descending" : "ascending");
  const rows = [...body.rows].map((row) => [valueOf(row.cells[order.column]), row]);
  rows.sort((one, other) => compare(one[0], other[0]) * (order.down ? -1 : 1));
  body.dataset.sorted = "";
  if (rows.some(([, row], place) => body.rows[place] !== row)) body.append(...rows.map(([, row]) => row));
}

function sort(label) {
  const table = label.closest("table");
  const column = label.closest("th").cellIndex;
  const before = sorted.get(nameOf(table));
  const isTime = table.tBodies[0]?.rows[0]?.cells[column]?.querySelector("time");
  const first = Boolean(isTime) || label.closest("th").classList.contains("right"); // the newest and the most first
  sorted.set(nameOf(table), { column, down: before?.column === column ? !before.down : first });
  apply(table);
}

export function startSorting() {
  for (const label of document.querySelectorAll("[data-sort]")) {
    label.setAttribute("role", "button");
    label.tabIndex = 0;
    label.title = t("Sort the rows of this page");
  }
  for (const table of new Set([...document.querySelectorAll("[data-sort]")].map((it) => it.closest("table")))) {
    if (sorted.has(nameOf(table))) apply(table);
  }
}

document.addEventListener("click", (event) => {
  const label = event.target.closest("[data-sort]");
  if (label) sort(label);
});
document.addEventListener("keydown", (event) => {
  if ((event.key === "Enter" || event.key === " ") && event.target.matches("[data-sort]")) {
    event.preventDefault();
    event.stopPropagation();
    sort(event.target);
  }
}, true);

// --- views ------------------------------------------------------------------------------------

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) || {};
  } catch {
    return {};
  }
}

function write(path, views) {
  localStorage.setItem(KEY, JSON.stringify({ ...read(), [path]: views.slice(-VIEWS_MAX) }));
}

function query() {
  const now = new URLSearchParams(location.search);
  for (const name of ["cursor", "page"]) now.delete(name);
  return now.toString();
}

function draw(place) {
  const path = place.dataset.views;
  const views = read()[path] || [];
  const parts = views.map(({ name, query: kept }) => {
    const one = document.createElement("span");
    one.className = "view";
    const link = document.createElement("a");
    link.href = kept ? `${path}?${kept}` : path;
    link.textContent = name;
    if (kept === query()) link.setAttribute("aria-current", "true");
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "×";
    remove.setAttribute("aria-label", t("Forget the view {name}", { name }));
    remove.addEventListener("click", () => {
      write(path, (read()[path] || []).filter((it) => it.name !== name));
      draw(place);
    });
    one.append(link, remove);
    return one;
  });
  const save = document.createElement("button");
  save.type = "button";
  save.className = "link";
  save.textContent = t("Save this view…");
  save.addEventListener("click", () => ask(place, save));
  place.replaceChildren(...parts, save);
}

function ask(place, save) {
  const path = place.dataset.views;
  const form = document.createElement("form");
  const field = document.createElement("input");
  field.setAttribute("aria-label", t("Name of this view"));
  field.placeholder = t("Name of this view");
  field.maxLength = 40;
  field.required = true;
  const button = document.createElement("button");
  button.className = "tool";
  button.textContent = t("Save");
  form.append(field, button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (name) write(path, [...(read()[path] || []).filter((it) => it.name !== name), { name, query: query() }]);
    draw(place);
  });
  field.addEventListener("keydown", (event) => event.key === "Escape" && draw(place));
  save.replaceWith(form);
  field.focus();
}

export function startViews() {
  const place = document.querySelector("[data-views]");
  if (place && !place.childElementCount) draw(place);
}
