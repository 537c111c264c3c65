// JSON as rows, one for each value and one for each closing bracket, without changing a byte: a row says where its
// name and its value are in the text. So numbers, escapes and repeated names stay as they were sent, and any depth works.
export const VALUE = 0, STRING = 1, OPEN = 2, CLOSE = 3;
const WORDS = /true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const SPACES = /[ \t\n\r]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;

class NotJson extends Error {}

export class Rows {
  kind = []; depth = []; from = []; to = []; nameFrom = []; nameTo = []; last = []; members = []; comma = [];
  // For each row also the closing row (``last``) and the number of values (``members``) of its brackets.
  add(kind, depth, from, to, name) {
    this.kind.push(kind); this.depth.push(depth); this.from.push(from); this.to.push(to);
    this.nameFrom.push(name ? name[0] : 0); this.nameTo.push(name ? name[1] : 0);
    this.last.push(0); this.members.push(0); this.comma.push(false);
    return this.kind.length - 1;
  }
  get length() {
    return this.kind.length;
  }
}

// The rows of a text, each of its lines.
export function lineRows(text) {
  const rows = new Rows();
  for (let at = 0; at <= text.length; ) {
    const end = text.indexOf("\n", at);
    rows.add(VALUE, 0, at, end < 0 ? text.length : end, null);
    if (end < 0) break;
    at = end + 1;
  }
  return rows;
}

// The rows of a JSON text; null if it is not JSON.
export function jsonRows(text) {
  try {
    return new Reader(text).read();
  } catch (error) {
    if (error instanceof NotJson) return null;
    throw error;
  }
}

class Reader {
  at = 0;
  rows = new Rows();
  constructor(text) {
    this.text = text;
  }

  read() {
    const open = []; // the rows of the brackets around this place
    do {
      const isObject = open.length && this.text[this.rows.from[open.at(-1)]] === "{";
      let name = null;
      this.space();
      if (isObject) {
        name = this.string();
        this.space();
        this.take(":");
        this.space();
      }
      if (open.length) this.rows.members[open.at(-1)] += 1;
      const bracket = this.text[this.at];
      if (bracket === "{" || bracket === "[") {
        const row = this.rows.add(OPEN, open.length, this.at, 0, name);
        this.at += 1;
        open.push(row);
        this.space();
        if (this.text[this.at] !== (bracket === "{" ? "}" : "]")) continue;
      } else {
        const [from, to] = bracket === '"' ? this.string() : this.word();
        this.rows.add(bracket === '"' ? STRING : VALUE, open.length, from, to, name);
      }
      this.end(open);
    } while (open.length);
    this.space();
    if (this.at !== this.text.length) throw new NotJson();
    return this.rows;
  }

  // After a value: a comma, or closing brackets and perhaps a comma behind them.
  end(open) {
    while (open.length) {
      this.space();
      const row = open.at(-1);
      const closing = this.text[this.rows.from[row]] === "{" ? "}" : "]";
      if (this.text[this.at] === ",") {
        this.rows.comma[this.rows.length - 1] = true;
        this.at += 1;
        return;
      }
      this.take(closing);
      this.rows.to[row] = this.at;
      this.rows.last[row] = this.rows.add(CLOSE, open.length - 1, this.at - 1, this.at, null);
      open.pop();
    }
  }

  space() {
    SPACES.lastIndex = this.at;
    SPACES.exec(this.text);
    this.at = SPACES.lastIndex;
  }

  take(character) {
    if (this.text[this.at] !== character) throw new NotJson();
    this.at += 1;
  }

  word() {
    WORDS.lastIndex = this.at;
    if (!WORDS.test(this.text)) throw new NotJson();
    const from = this.at;
    this.at = WORDS.lastIndex;
    return [from, this.at];
  }

  string() {
    const from = this.at;
    this.take('"');
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (code === 0x22) break;
      if (!(code >= 0x20)) throw new NotJson(); // also at the end, where it is NaN
      if (code !== 0x5c) {
        this.at += 1;
        continue;
      }
      ESCAPE.lastIndex = this.at;
      if (!ESCAPE.test(this.text)) throw new NotJson();
      this.at = ESCAPE.lastIndex;
    }
    this.at += 1;
    return [from, this.at];
  }
}
