// Starts the scripts that every page uses, and the charts on pages that have them.
import { startTimes, showTimes, startTimeFields, showTimeFields } from "./times.js";
import { startKeys, markRow } from "./keys.js";
import { startDialogs } from "./dialogs.js";
import { startToasts } from "./toasts.js";
import { startLive } from "./live.js";
import { startForms } from "./forms.js";

startTimes();
startTimeFields();
startKeys();
startDialogs();
startToasts();
startLive();
startForms();

if (document.querySelector("[data-chart]")) {
  import("./charts.js").then((charts) => charts.startCharts());
}

// These scripts are loaded by pages that need them, now or after a change.
function startParts() {
  if (document.querySelector("[data-viewer]")) import("./viewer.js").then((viewer) => viewer.startViewers());
  if (document.querySelector("[data-sort], [data-views]")) {
    import("./lists.js").then((lists) => {
      lists.startSorting();
      lists.startViews();
    });
  }
  if (document.querySelector("[data-outage]")) import("./outage.js").then((outage) => outage.startOutages());
}
startParts();

// A browser may restore a page from its memory, even after a sign-out: reload it.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

// On a narrow screen the navigation is one line that scrolls: keep the current page visible.
document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// New parts contain times too, and the selected row must stay selected.
function shown(region) {
  showTimes(region);
  showTimeFields(region);
  markRow();
}
document.body.addEventListener("htmx:afterSwap", (event) => {
  shown(event.detail.elt.parentElement || document);
  startParts();
});
addEventListener("updated", () => {
  shown(document);
  startParts();
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

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    dispatchEvent(new CustomEvent("toast", { detail: { text: "Copied." } }));
  } catch {
    dispatchEvent(new CustomEvent("toast", { detail: { text: "The browser did not allow copying. Select the text and copy it.", bad: true } }));
  }
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button.dataset.copy);
});
addEventListener("copytext", (event) => copy(event.detail));
