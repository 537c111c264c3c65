// One stream per tab, closed while the tab is hidden. A tick renders the page again, whole: all parts of a page
// come from one response, so no two of them disagree. Without a stream, the page polls every few seconds.
import { t } from "./language.js";
import { update } from "./update.js";
import { hold } from "./moving.js";

const POLL_MS = 5000;
const TEXTS = { live: t("live"), connecting: t("connecting"), poll: t("polling"), lost: t("no connection") };
let source = null;
let poll = null;
let failures = 0;
let loading = false;
let again = false; // Something changed while the page was on its way.

function showState(state) {
  const indicator = document.getElementById("live");
  if (!indicator || indicator.dataset.state === state) return;
  if (state === "lost") dispatchEvent(new CustomEvent("announce", { detail: t("No connection: this page may be out of date.") }));
  indicator.dataset.state = state;
  indicator.querySelector(".live-text").textContent = TEXTS[state];
}

async function load(main) {
  const response = await fetch(location.pathname + location.search, { headers: { "HX-Request": "true" } });
  if (response.status === 401) {
    location.assign(response.headers.get("HX-Redirect") || "/sign-in");
    return;
  }
  if (response.status === 404 || response.status === 410) location.reload(); // It says what happened.
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
  if (!fresh?.hasAttribute("data-live")) return;
  update(main, fresh, hold);
  window.htmx?.process(main);
  dispatchEvent(new Event("updated"));
}

export async function refresh() {
  if (document.hidden) return;
  dispatchEvent(new Event("tick"));
  const main = document.querySelector("main[data-live]");
  if (!main) return;
  again = loading;
  if (loading) return;
  loading = true;
  try {
    await load(main);
  } catch {
    showState("lost");
  } finally {
    loading = false;
    if (again) refresh();
  }
}

function open() {
  if (source || document.hidden) return;
  source = new EventSource(document.body.dataset.live || "/live");
  source.onopen = () => {
    failures = 0;
    stopPolling();
    showState("live");
    refresh();
  };
  source.addEventListener("tick", refresh);
  source.onerror = () => {
    failures += 1;
    showState("lost");
    if (source.readyState === EventSource.CLOSED || failures > 2) {
      close();
      startPolling();
      refresh(); // If the key no longer works, this leads to the sign-in page.
    }
  };
}

function close() {
  source?.close();
  source = null;
}

function startPolling() {
  showState("poll");
  poll ??= setInterval(() => {
    refresh();
    if (Math.random() < 0.1) open();
  }, POLL_MS);
}

function stopPolling() {
  clearInterval(poll);
  poll = null;
}

export function startLive() {
  document.body.addEventListener("refresh", refresh); // sent by the server after a command
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
}
