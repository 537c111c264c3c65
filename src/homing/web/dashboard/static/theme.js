// Before the first paint: the theme that was chosen here, or none, which leaves it to the system.
const chosen = localStorage.getItem("homing-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
