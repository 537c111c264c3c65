// A link like /sign-in#hk_… signs in with its key. Browsers send the part after # to no server.
const key = decodeURIComponent(location.hash.slice(1));
if (key.startsWith("hk_")) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("key").value = key;
  document.querySelector("form").requestSubmit();
}
