// A link like /sign-in#hk_… carries its key where no server and no log ever sees it.
const key = decodeURIComponent(location.hash.slice(1));
if (key.startsWith("hk_")) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("key").value = key;
  document.querySelector("form").requestSubmit();
}
