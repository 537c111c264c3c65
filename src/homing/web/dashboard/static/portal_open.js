// Opens a link of the customer portal at once. Programs that only fetch a link do not use it up.
document.querySelector("form[data-open]")?.requestSubmit();
