// Shows a body as it was sent: JSON in colours and folded, other text in lines. However large it is, only a part of
// its rows and of a long value is in the page; the rest comes with a click or with a search.
import { addText, bytesToText } from "./characters.js";
import { CLOSE, OPEN, STRING, jsonRows, lineRows } from "./json_rows.js";
import { t, tn, whole } from "./language.js";

const SHOWN_ROWS = 300;
const SHOWN_CHARACTERS = 2000;
const MORE_CHARACTERS = 20000;
const FOLDED_FROM = 40; // rows between two brackets, in a body that has more rows than are shown at once
const DEEP = 30; // Deeper rows are not indented any more.
const FOUND_MAX = 10000;
const RETRY = t("The server did not send this text. Reload the page.");

function make(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (name === "button") made.type = "button";
  if (text) made.textContent = text;
  return made;
}

class Viewer {
  decoded = false;
  asSent = false;
  find = null; // a regular expression
  found = []; // the rows that match
  current = -1; // the place in ``found``
  first = 0; // of the rows in view
  longer = new Map(); // row -> how many characters of its value are shown

  constructor(box, text) {
    this.box = box;
    this.text = text;
    this.json = jsonRows(text);
    this.lines = null;
    this.folded = new Set();
    this.foldLarge();
    box.replaceChildren(this.tools(), (this.body = make("div", "block viewer-rows")));
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "group");
    this.body.setAttribute("aria-label", box.dataset.label);
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.draw();
  }

  get rows() {
    if (this.json && !this.asSent) return this.json;
    return (this.lines ??= lineRows(this.text));
  }

  foldLarge() {
    const rows = this.json;
    if (!rows || rows.length <= SHOWN_ROWS) return;
    for (let row = 1; row < rows.length; row += 1) {
      if (rows.kind[row] === OPEN && rows.last[row] - row > FOLDED_FROM) this.folded.add(row);
    }
  }

  tools() {
    const box = make("div", "viewer-tools");
    const search = make("input");
    search.type = "search";
    search.placeholder = t("Search inside");
    search.setAttribute("aria-label", t("Search inside: {label}", { label: this.box.dataset.label }));
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    });
    this.count = make("span", "soft small viewer-count");
    box.append(search, this.count);
    if (this.json) {
      if (this.text.includes("\\")) box.append(this.toggle(t("Decode escapes"), "decoded"));
      box.append(this.toggle(t("As sent"), "asSent"));
      if (this.json.length > 3) box.append(this.button(t("Fold"), () => this.foldAll()), this.button(t("Unfold"), () => this.unfoldAll()));
    }
    box.append(this.button(t("Copy"), () => dispatchEvent(new CustomEvent("copytext", { detail: this.text }))));
    if (this.box.dataset.url) {
      const link = make("a", "tool", t("Download"));
      link.href = this.box.dataset.url;
      link.setAttribute("download", "");
      box.append(link);
    }
    return box;
  }

  button(text, act) {
    const button = make("button", "tool", text);
    button.addEventListener("click", act);
    return button;
  }

  toggle(text, name) {
    const button = this.button(text, () => {
      this[name] = !this[name];
      button.setAttribute("aria-pressed", this[name]);
      this.first = 0;
      this.longer.clear();
      this.search(this.searched || "");
    });
    button.setAttribute("aria-pressed", "false");
    return button;
  }

  foldAll() {
    const rows = this.json;
    for (let row = 1; row < rows.length; row += 1) if (rows.kind[row] === OPEN) this.folded.add(row);
    this.first = 0;
    this.draw();
  }

  unfoldAll() {
    this.folded.clear();
    this.first = 0;
    this.draw();
  }

  // --- search ---------------------------------------------------------------------------------

  search(text) {
    this.searched = text;
    this.find = text ? new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu") : null;
    this.found = [];
    this.current = -1;
    if (this.find) {
      const { rows } = this;
      for (let row = 0; row < rows.length && this.found.length < FOUND_MAX; row += 1) {
        if (rows.kind[row] === CLOSE) continue;
        this.find.lastIndex = 0;
        if (this.find.test(this.nameOf(row)) || (rows.kind[row] !== OPEN && ((this.find.lastIndex = 0), this.find.test(this.valueOf(row))))) this.found.push(row);
      }
    }
    if (this.found.length) this.step(1);
    else this.draw();
    if (this.find && !this.found.length) dispatchEvent(new CustomEvent("announce", { detail: t("not found") }));
  }

  step(by) {
    if (!this.found.length) return;
    this.current = (this.current + by + this.found.length) % this.found.length;
    const row = this.found[this.current];
    this.reveal(row);
    this.draw();
    dispatchEvent(new CustomEvent("announce", { detail: this.count.textContent }));
    const shown = this.body.querySelector(".v-current");
    if (shown) this.body.scrollTop = shown.offsetTop - this.body.offsetTop - this.body.clientHeight / 3;
  }

  // Unfolds the brackets around a row, puts it in view, and shows its value up to the first match.
  reveal(row) {
    const { rows } = this;
    for (const one of this.folded) if (one < row && row <= rows.last[one]) this.folded.delete(one);
    const place = this.visible().indexOf(row);
    if (place < this.first || place >= this.first + SHOWN_ROWS) this.first = Math.max(place - SHOWN_ROWS / 2, 0);
    if (rows.kind[row] === OPEN) return;
    this.find.lastIndex = 0;
    const match = this.find.exec(this.valueOf(row));
    if (match && match.index > (this.longer.get(row) || SHOWN_CHARACTERS)) this.longer.set(row, match.index + SHOWN_CHARACTERS);
  }

  // --- rows -----------------------------------------------------------------------------------

  visible() {
    const { rows } = this;
    const shown = [];
    for (let row = 0; row < rows.length; row += 1) {
      shown.push(row);
      if (this.folded.has(row) && rows === this.json) row = rows.last[row];
    }
    return shown;
  }

  decode(raw) {
    return this.decoded && !this.asSent && raw.includes("\\") ? `"${JSON.parse(raw)}"` : raw;
  }

  nameOf(row) {
    const { rows } = this;
    return rows.nameTo[row] ? this.decode(this.text.slice(rows.nameFrom[row], rows.nameTo[row])) : "";
  }

  valueOf(row) {
    const { rows } = this;
    const raw = this.text.slice(rows.from[row], rows.to[row]);
    return rows.kind[row] === STRING ? this.decode(raw) : raw;
  }

  draw() {
    const all = this.visible();
    const end = Math.min(this.first + SHOWN_ROWS, all.length);
    const parts = [];
    if (this.first > 0) parts.push(this.moreRows(tn("{count} row before", "{count} rows before", this.first), Math.max(this.first - SHOWN_ROWS, 0)));
    for (let place = this.first; place < end; place += 1) parts.push(this.drawRow(all[place]));
    if (end < all.length) parts.push(this.moreRows(tn("{count} row after", "{count} rows after", all.length - end), end));
    this.body.replaceChildren(...parts);
    const many = this.found.length === FOUND_MAX ? `${whole(FOUND_MAX)}+` : whole(this.found.length);
    this.count.textContent = !this.find ? "" : this.found.length ? t("{place} of {count}", { place: whole(this.current + 1), count: many }) : t("not found");
  }

  moreRows(text, first) {
    const button = make("button", "tool v-rows", text);
    button.dataset.first = first;
    return button;
  }

  drawRow(row) {
    const { rows } = this;
    const line = make("div", "v-row");
    if (rows === this.json) line.style.setProperty("--depth", Math.min(rows.depth[row], DEEP));
    if (rows.depth[row] > DEEP) line.append(make("span", "v-depth", `${rows.depth[row]} `));
    if (row === this.found[this.current]) line.classList.add("v-current");
    const isOpen = rows.kind[row] === OPEN;
    const isFolded = isOpen && this.folded.has(row);
    if (isOpen) {
      const name = this.nameOf(row) || (this.text[rows.from[row]] === "{" ? t("object") : t("list"));
      const fold = make("button", "v-fold");
      fold.dataset.fold = row;
      fold.setAttribute("aria-expanded", !isFolded);
      const short = { name: name.slice(0, 80) };
      fold.setAttribute("aria-label", isFolded ? t("Unfold {name}", short) : t("Fold {name}", short));
      line.append(fold);
    }
    const name = this.nameOf(row);
    if (name) {
      line.append(this.part("v-name", name), ": ");
    }
    if (isFolded) {
      const count = rows.members[row];
      line.append(this.text[rows.from[row]], make("span", "v-folded", ` ${tn("{count} value", "{count} values", count)} `), this.text[rows.to[row] - 1]);
    } else if (isOpen) {
      line.append(this.text[rows.from[row]]);
    } else {
      this.drawValue(line, row);
    }
    if (rows.comma[isFolded ? rows.last[row] : row]) line.append(",");
    return line;
  }

  drawValue(line, row) {
    const { rows } = this;
    const value = this.valueOf(row);
    const shown = this.longer.get(row) || SHOWN_CHARACTERS;
    const isJson = rows === this.json;
    const className = !isJson || rows.kind[row] === CLOSE ? "" : rows.kind[row] === STRING ? "v-string" : /^[tfn]/.test(value) ? "v-word" : "v-number";
    line.append(this.part(className, value.slice(0, shown)));
    if (value.length <= shown) return;
    const more = make("button", "tool", tn("{count} character more", "{count} characters more", value.length - shown));
    more.dataset.longer = row;
    line.append(" ", more);
  }

  part(className, text) {
    const part = make("span", `v-part ${className}`);
    addText(part, text, this.find);
    return part;
  }

  clicked(event) {
    const { fold, longer, first } = event.target.closest("button")?.dataset || {};
    if (fold !== undefined) {
      const row = Number(fold);
      if (!this.folded.delete(row)) this.folded.add(row);
    } else if (longer !== undefined) {
      this.longer.set(Number(longer), (this.longer.get(Number(longer)) || SHOWN_CHARACTERS) + MORE_CHARACTERS);
    } else if (first !== undefined) {
      this.first = Number(first);
      this.body.scrollTop = 0;
    } else return;
    this.draw();
    (this.body.querySelector(`[data-fold="${fold}"], [data-longer="${longer}"]`) || this.body).focus({ preventScroll: true });
  }
}

async function open(box) {
  let bytes;
  if (box.dataset.bytes !== undefined) bytes = Uint8Array.from(atob(box.dataset.bytes), (one) => one.charCodeAt(0));
  else {
    const response = await fetch(box.dataset.url);
    if (!response.ok) {
      dispatchEvent(new CustomEvent("toast", { detail: { text: RETRY, bad: true } }));
      return;
    }
    bytes = new Uint8Array(await response.arrayBuffer());
  }
  new Viewer(box, bytesToText(bytes));
}

// A body is loaded when it comes into view, which is when its part of the page is opened.
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    open(target).catch(() => dispatchEvent(new CustomEvent("toast", { detail: { text: RETRY, bad: true } })));
  }
}, { rootMargin: "200px" });
const known = new WeakSet();

export function startViewers() {
  for (const box of document.querySelectorAll("[data-viewer]")) {
    if (known.has(box)) continue;
    known.add(box);
    seen.observe(box);
  }
}
