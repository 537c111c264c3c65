// Shows times in the viewer's time zone, with UTC as the tooltip, and updates relative times.
import { locale, t } from "./language.js";

const DAY = 86400;
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "always", style: "narrow" });
const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(locale, { year: "numeric", month: "short", day: "numeric" });
// It stands in sentences ("due at …"), where languages begin with the clock or with the day.
const full = (at) => t("{day}, {clock}", { day: day.format(at), clock: clock.format(at) });

function distance(seconds) {
  const size = Math.abs(seconds);
  if (size < 5) return t("now");
  if (size < 60) return relative.format(Math.round(seconds), "second");
  if (size < 3600) return relative.format(Math.round(seconds / 60), "minute");
  if (size < DAY * 2) return relative.format(Math.round(seconds / 3600), "hour");
  return relative.format(Math.round(seconds / DAY), "day");
}

function show(time, now) {
  const at = new Date(time.dateTime);
  if (time.dataset.form === "ago") {
    const text = distance((at - now) / 1000);
    if (time.textContent !== text) time.textContent = text;
    time.title = `${full(at)} · ${time.dateTime.slice(0, 19).replace("T", " ")} UTC`;
    return;
  }
  const today = new Date(now).toDateString() === at.toDateString();
  time.textContent = today ? clock.format(at) : full(at);
}

export function showTimes(root = document) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-form]")) show(time, now);
}

export function startTimes() {
  showTimes();
  setInterval(() => document.hidden || showTimes(), 5000);
}

// Fields for a time show the viewer's local time; forms send it in UTC.
const pad = (number) => String(number).padStart(2, "0");

export function showTimeFields(root = document) {
  for (const field of root.querySelectorAll("input[data-time]")) {
    if (field.value) continue;
    const at = new Date(field.dataset.time);
    field.value = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}`;
  }
}

// In a search, "since:14:00" is that time in the viewer's zone, today or yesterday; the server reads RFC 3339.
function writeOut(text) {
  return text.replace(/\b(since|until):(\d{1,2}):(\d{2})(?=\s|$)/g, (all, name, hour, minute) => {
    if (hour > 23 || minute > 59) return all;
    const at = new Date();
    at.setHours(hour, minute, 0, 0);
    if (at > Date.now()) at.setDate(at.getDate() - 1);
    return `${name}:${at.toISOString()}`;
  });
}

export function startTimeFields() {
  showTimeFields();
  document.addEventListener("submit", (event) => {
    const field = event.target.matches("form[role=search]") && event.target.elements.q;
    if (field) field.value = writeOut(field.value);
  });
  document.body.addEventListener("htmx:configRequest", (event) => {
    const { parameters } = event.detail;
    for (const [name, value] of Object.entries(parameters)) {
      const isTime = document.querySelector(`input[type="datetime-local"][name="${CSS.escape(name)}"]`);
      if (isTime && value) parameters[name] = new Date(value).toISOString();
    }
  });
}
