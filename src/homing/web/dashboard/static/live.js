// One stream per tab, closed while the tab is hidden. A tick refreshes what is live on the page;
// where the stream cannot be had, the page asks again by itself every few seconds.
const POLL_MS = 5000;
const WORDS = { live: "live", still: "connecting", poll: "polling", lost: "no connection" };
let source = null;
let poll = null;
let failures = 0;

function mark(state) {
  const sign = document.getElementById("live");
  if (!sign || sign.dataset.state === state) return;
  sign.dataset.state = state;
  sign.querySelector(".live-word").textContent = WORDS[state];
}

function busy(region) {
  return region.hasAttribute("data-refreshing") || region.querySelector("dialog[open], input:focus, select:focus");
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
    mark("live");
    refresh();
  };
  source.addEventListener("tick", refresh);
  source.onerror = () => {
    failures += 1;
    mark("lost");
    if (source.readyState === EventSource.CLOSED || failures > 2) {
      close();
      startPolling();
      refresh(); // A page whose key no longer works learns it now.
    }
  };
}

function close() {
  source?.close();
  source = null;
}

function startPolling() {
  mark("poll");
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
  body.addEventListener("refresh", refresh); // from the server: something was just done
  body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.hasAttribute("data-live")) event.target.setAttribute("data-refreshing", "");
  });
  body.addEventListener("htmx:afterRequest", (event) => event.target.removeAttribute?.("data-refreshing"));
  // A refresh that failed is shown by the sign of the stream, not by a message each second.
  body.addEventListener("htmx:sendError", (event) => {
    if (event.target.hasAttribute?.("data-live")) {
      mark("lost");
      event.stopImmediatePropagation();
    }
  }, true);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
}
