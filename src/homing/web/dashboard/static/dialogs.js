import { refresh } from "./live.js";

// Dialogs: a button opens the dialog with its id. Its buttons, Escape and a successful form close it.
export function startDialogs() {
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) {
      const dialog = document.getElementById(opener.dataset.dialog);
      dialog.showModal();
      dialog.dispatchEvent(new Event("opened"));
      return;
    }
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
    else if (event.target.nodeName === "DIALOG") event.target.close();
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    const dialog = event.target.closest?.("dialog[open]");
    if (dialog && event.target.nodeName === "FORM" && event.detail.successful && !dialog.hasAttribute("data-stay")) {
      dialog.close();
      refresh(); // The dialog was left as it was while it was open.
    }
  });
  // The buttons of a form are disabled while it is being sent, so that it is not sent twice.
  document.body.addEventListener("htmx:beforeRequest", (event) => busy(event, true));
  document.body.addEventListener("htmx:afterRequest", (event) => busy(event, false));
  // Also of a form that leaves the page; its values are taken before the button is disabled.
  document.addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method === "post") setTimeout(() => busy(event, true));
  });
}

function busy(event, on) {
  if (event.target.nodeName !== "FORM") return;
  for (const button of event.target.querySelectorAll("button:not([type=button])")) button.disabled = on;
}
