// Toasts: short messages about the result of a command.
import { t } from "./language.js";

function showToast(text, bad = false) {
  const toast = document.createElement("p");
  toast.className = bad ? "toast is-bad" : "toast";
  if (bad) toast.setAttribute("role", "alert");
  toast.textContent = text;
  const box = document.getElementById("toasts");
  box.append(toast);
  while (box.childElementCount > 4) box.firstElementChild.remove();
  const remove = () => toast.remove();
  toast.addEventListener("click", remove);
  setTimeout(remove, bad ? 12000 : 6000);
}

// For screen readers: the page has one place that they read out, and it is the one of the toasts.
function announce(text) {
  const line = document.createElement("p");
  line.className = "hidden";
  line.textContent = text;
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), 6000);
}

export function startToasts() {
  const box = document.getElementById("toasts");
  if (box.dataset.message) showToast(box.dataset.message);
  const show = (event) => showToast(event.detail.text, event.detail.bad);
  document.body.addEventListener("toast", show); // from a response, dispatched by htmx
  addEventListener("toast", (event) => event.target === window && show(event)); // from another script
  addEventListener("announce", (event) => announce(event.detail));
  document.body.addEventListener("htmx:sendError", () => showToast(t("The server does not respond."), true));
  document.body.addEventListener("htmx:responseError", (event) => {
    if (!event.detail.xhr.getResponseHeader("HX-Trigger") && event.detail.xhr.status !== 401) {
      showToast(t("The server responded with status {status}.", { status: event.detail.xhr.status }), true);
    }
  });
}
