// What every page has: times, keys, dialogs, messages, the live stream; charts where there are any.
import { startTimes, showTimes } from "./times.js";
import { startKeys, markRow } from "./keys.js";
import { startDialogs } from "./dialogs.js";
import { startToasts } from "./toasts.js";
import { startLive } from "./live.js";
import { startForms } from "./forms.js";

startTimes();
startKeys();
startDialogs();
startToasts();
startLive();
startForms();

if (document.querySelector("[data-chart]")) {
  import("./charts.js").then((charts) => charts.startCharts());
}

// A browser may show a page out of its memory, also after a sign-out: ask for it again.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

// On a narrow screen the pages stand in one line that scrolls: the current one is in sight.
document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// What htmx puts on the page has times too, and the chosen row stays chosen.
document.body.addEventListener("htmx:afterSwap", (event) => {
  showTimes(event.detail.elt.parentElement || document);
  markRow();
});

document.querySelector("[data-theme-toggle]")?.addEventListener("click", () => {
  const html = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = html.dataset.theme || (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  html.dataset.theme = next;
  localStorage.setItem("homing-theme", next);
  dispatchEvent(new Event("theme"));
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    dispatchEvent(new CustomEvent("said", { detail: { text: "Copied." } }));
  } catch {
    dispatchEvent(new CustomEvent("said", { detail: { text: "The browser did not let us copy.", bad: true } }));
  }
});
