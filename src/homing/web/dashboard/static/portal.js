// Starts the scripts of the customer portal.
import { startPage } from "./page.js";
import { startRows } from "./keys.js";

startPage();
startRows();

// On a narrow screen the navigation is one line that scrolls: keep the current page visible.
const nav = document.querySelector(".portal-nav");
const here = nav?.querySelector("[aria-current]");
if (here) nav.scrollLeft = here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
