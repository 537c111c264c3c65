// Sends the form when a person chooses another language; it leads back to the page as it is now.
document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-language]")) return;
  target.form.elements.to.value = location.pathname + location.search;
  target.form.requestSubmit();
});
