// Applies the theme that was chosen in this browser before the first paint; the default follows the system.
const chosen = localStorage.getItem("homing-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
