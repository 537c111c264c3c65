// One stream per tab, closed while the tab is hidden. A tick reloads the live parts of the page.
// Without a stream, the page polls every few seconds.
const POLL_MS = 5000;
const TEXTS = { live: "live", connecting: "connecting", poll: "polling", lost: "no connection" };
let source = null;
let poll = null;
let failures = 0;

function showState(state) {
  const indicator = document.getElementById("live");
  if (!indicator || indicator.dataset.state === state) return;
  indicator.dataset.state = state;
  indicator.querySelector(".live-text").textContent = TEXTS[state];
}

// Whether somebody is doing something in this part: reloading it would close their dialog or clear their field.
function inUse(region) {
  return region.querySelector("dialog[open], input:focus, select:focus") !== null;
}

function busy(region) {
  return region.hasAttribute("data-refreshing") || inUse(region);
}

export function refresh() {
  if (document.hidden) return;
  for (const region of document.querySelectorAll("[data-live]")) {
    if (!busy(region)) window.htmx?.trigger(region, "tick");
  }
  dispatchEvent(new Event("tick"));
}

function open() {
  if (source || document.hidden) return;
  source = new EventSource("/live");
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
  const body = document.body;
  body.addEventListener("refresh", refresh); // sent by the server after a command
  body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.hasAttribute("data-live")) event.target.setAttribute("data-refreshing", "");
  });
  body.addEventListener("htmx:afterRequest", (event) => event.target.removeAttribute?.("data-refreshing"));
  // A dialog may have been opened while the part was on its way: the next tick reloads it.
  body.addEventListener("htmx:beforeSwap", (event) => {
    const region = event.detail.target;
    if (region.hasAttribute("data-live") && inUse(region)) event.detail.shouldSwap = false;
  });
  // A failed refresh changes the indicator of the stream; a toast every second would be too much.
  body.addEventListener("htmx:sendError", (event) => {
    if (event.target.hasAttribute?.("data-live")) {
      showState("lost");
      event.stopImmediatePropagation();
    }
  }, true);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
}
