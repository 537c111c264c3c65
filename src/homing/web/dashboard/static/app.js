// Starts the scripts of the dashboard, and the charts on pages that have them.
import { startPage } from "./page.js";
import { startKeys, markRow } from "./keys.js";

startPage(() => {
  markRow(); // The selected row must stay selected.
  startParts();
});
startKeys();

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

// On a narrow screen the navigation is one line that scrolls: keep the current page visible.
document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

document.querySelector("[data-theme-toggle]")?.addEventListener("click", () => {
  const html = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = html.dataset.theme || (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  html.dataset.theme = next;
  localStorage.setItem("homing-theme", next);
  dispatchEvent(new Event("theme"));
});
