// Starts the scripts that the pages of the dashboard and of the customer portal share.
import { t } from "./language.js";
import { startTimes, showTimes, startTimeFields, showTimeFields } from "./times.js";
import { startDialogs } from "./dialogs.js";
import { startToasts } from "./toasts.js";
import { startLive } from "./live.js";
import { startForms } from "./forms.js";
import "./choose_language.js";

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    dispatchEvent(new CustomEvent("toast", { detail: { text: t("Copied.") } }));
  } catch {
    dispatchEvent(new CustomEvent("toast", { detail: { text: t("The browser did not allow copying. Select the text and copy it."), bad: true } }));
  }
}

// ``shown`` is called for every part of the page that is new.
export function startPage(shown = () => {}) {
  startTimes();
  startTimeFields();
  startDialogs();
  startToasts();
  startLive();
  startForms();
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button.dataset.copy);
  });
  addEventListener("copytext", (event) => copy(event.detail));

  // A browser may restore a page from its memory, even after a sign-out: reload it.
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });

  // New parts contain times too.
  const show = (region) => {
    showTimes(region);
    showTimeFields(region);
    shown();
  };
  document.body.addEventListener("htmx:afterSwap", (event) => show(event.detail.elt.parentElement || document));
  addEventListener("updated", () => show(document));
}
