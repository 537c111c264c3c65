// Checks a form on the server while a person types, and shows each problem next to its field.
const WAIT_MS = 350;

export function startForms() {
  for (const field of document.querySelectorAll("input[type=file][data-into]")) {
    field.addEventListener("change", () => read(field));
  }
  for (const form of document.querySelectorAll("form[data-check]")) watch(form);
}

// Puts a chosen file into another field of its form, as a data URL.
function read(field) {
  const into = document.getElementById(field.dataset.into);
  into.value = "";
  if (!field.files.length) return;
  const reader = new FileReader();
  reader.onload = () => { into.value = reader.result; };
  reader.readAsDataURL(field.files[0]);
}

function watch(form) {
  const touched = new Set();
  let timer = 0;
  let checks = 0;
  form.addEventListener("input", (event) => {
    touched.add(event.target.name);
    clearTimeout(timer);
    timer = setTimeout(() => check(form, touched, ++checks, () => checks), WAIT_MS);
  });
}

async function check(form, touched, number, latest) {
  const response = await fetch(form.dataset.check, {
    method: "POST",
    body: new URLSearchParams(new FormData(form)),
    headers: { "HX-Request": "true" },
  });
  if (!response.ok || number !== latest()) return;
  const { problems } = await response.json();
  for (const place of form.querySelectorAll("[data-problem]")) {
    const name = place.dataset.problem;
    if (!touched.has(name)) continue;
    place.textContent = problems[name] || "";
    form.elements[name]?.setAttribute("aria-invalid", name in problems ? "true" : "false");
  }
}
