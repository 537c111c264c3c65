// A link like /sign-in#hk_… signs in with its key, one like /sign-in#hl_… signs in once. Browsers send the part after #
// to no server.
function signIn() {
  const key = decodeURIComponent(location.hash.slice(1));
  if (!/^h[kl]_/.test(key)) return;
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("key").value = key;
  document.querySelector("form").requestSubmit();
}
signIn();
addEventListener("hashchange", signIn); // The link was opened in a tab that shows this page.
