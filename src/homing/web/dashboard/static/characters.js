// Text as it was sent: bytes become text without a loss, and characters that hide or reorder text get a visible name.
import { t } from "./language.js";

const NAMES = {
  0x00: t("null"), 0x08: t("backspace"), 0x09: t("tab"), 0x0a: t("line feed"), 0x0d: t("carriage return"),
  0x1b: t("escape character"), 0x7f: t("delete character"), 0x85: t("next line"),
  0xa0: t("no-break space"), 0xad: t("soft hyphen"), 0x61c: t("Arabic letter mark"), 0x200b: t("zero width space"), 0x200c: t("zero width non-joiner"),
  0x200d: t("zero width joiner"), 0x200e: t("left-to-right mark"), 0x200f: t("right-to-left mark"),
  0x2028: t("line separator"), 0x2029: t("paragraph separator"), 0x202a: t("left-to-right embedding"),
  0x202b: t("right-to-left embedding"), 0x202c: t("pop directional formatting"),
  0x202d: t("left-to-right override"), 0x202e: t("right-to-left override"), 0x2060: t("word joiner"),
  0x2066: t("left-to-right isolate"), 0x2067: t("right-to-left isolate"), 0x2068: t("first strong isolate"),
  0x2069: t("pop directional isolate"), 0xfeff: t("zero width no-break space"),
};
// Control and format characters, odd spaces, tags, and halves of surrogate pairs; not the tab and the line feed.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u061c\u115f\u1160\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}\p{Cs}]/gu;

function visible(character) {
  const code = character.codePointAt(0);
  const shown = document.createElement("span");
  shown.className = "v-char";
  const isByte = code >= 0xdc80 && code <= 0xdcff; // made by bytesToText
  const name = isByte ? `\\x${(code - 0xdc00).toString(16)}` : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  shown.textContent = name;
  shown.title = isByte ? t("a byte that is not UTF-8") : NAMES[code] || t("a character without a shape of its own");
  return shown;
}

// Adds text to an element; hidden characters are named, and the places that ``find`` matches are marked.
export function addText(parent, text, find = null) {
  let at = 0;
  if (find) {
    find.lastIndex = 0; // A search may have left it behind its last match.
    for (const match of text.matchAll(find)) {
      addPlain(parent, text.slice(at, match.index));
      const mark = document.createElement("mark");
      addPlain(mark, match[0]);
      parent.append(mark);
      at = match.index + match[0].length;
    }
  }
  addPlain(parent, text.slice(at));
}

function addPlain(parent, text) {
  let at = 0;
  for (const match of text.matchAll(HIDDEN)) {
    parent.append(text.slice(at, match.index), visible(match[0]));
    at = match.index + match[0].length;
  }
  parent.append(text.slice(at));
}

// UTF-8 as text. A byte that is not UTF-8 becomes half a surrogate pair, U+DC80 to U+DCFF, and is shown as \x80 to \xff.
export function bytesToText(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    const parts = [];
    for (let at = 0; at < bytes.length; ) {
      const size = characterAt(bytes, at);
      parts.push(size ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(at, at + size)) : String.fromCharCode(0xdc00 + bytes[at]));
      at += size || 1;
    }
    return parts.join("");
  }
}

// The number of bytes of the character at a place; 0 if there is none.
function characterAt(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return 1;
  const size = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (!size || at + size > bytes.length) return 0;
  for (let place = at + 1; place < at + size; place += 1) if ((bytes[place] & 0xc0) !== 0x80) return 0;
  const second = bytes[at + 1];
  const isBad = (first === 0xe0 && second < 0xa0) || (first === 0xed && second > 0x9f) || (first === 0xf0 && second < 0x90) || (first === 0xf4 && second > 0x8f);
  return isBad ? 0 : size;
}
