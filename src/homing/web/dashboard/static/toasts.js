// Short messages: what was done, or why it was not.
export function say(text, bad = false) {
  const toast = document.createElement("p");
  toast.className = bad ? "toast is-bad" : "toast";
  if (bad) toast.setAttribute("role", "alert");
  toast.textContent = text;
  const box = document.getElementById("toasts");
  box.append(toast);
  while (box.childElementCount > 4) box.firstElementChild.remove();
  const away = () => toast.remove();
  toast.addEventListener("click", away);
  setTimeout(away, bad ? 12000 : 6000);
}

export function startToasts() {
  const box = document.getElementById("toasts");
  if (box.dataset.said) say(box.dataset.said);
  const heard = (event) => say(event.detail.text, event.detail.bad);
  document.body.addEventListener("said", heard); // from the server, by htmx
  addEventListener("said", (event) => event.target === window && heard(event)); // from the page
  document.body.addEventListener("htmx:sendError", () => say("The server does not respond.", true));
  document.body.addEventListener("htmx:responseError", (event) => {
    if (!event.detail.xhr.getResponseHeader("HX-Trigger") && event.detail.xhr.status !== 401) {
      say(`The server responded with ${event.detail.xhr.status}.`, true);
    }
  });
}
