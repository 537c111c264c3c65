// Texts in the language of the page. The English text is the key of its translations; a page in another language loads
// them before its scripts (messages.nl.js).
const messages = window.homingMessages || {};
const language = document.documentElement.lang || "en";

// For dates and times. A browser may know the region: en-GB and en-US write them differently. Its Chinese may be the
// traditional one, which the pages do not use.
export const locale = language === "zh" ? "zh-Hans" : navigator.languages.find((it) => it.split("-")[0] === language) || language;

// Numbers are written like those that the server writes: without a region, and with a sign after every thousand.
const grouped = { useGrouping: "always" };
export const number = (value, options = {}) => value.toLocaleString(language, { ...grouped, ...options });
export const whole = (value) => number(value, { maximumFractionDigits: 0 });

const parts = new Intl.NumberFormat(language, grouped).formatToParts(1234.5);
const [GROUP, DECIMAL] = ["group", "decimal"].map((type) => parts.find((it) => it.type === type).value);
const NUMBER = new RegExp(`^-?[\\d${GROUP}]+([${DECIMAL}]\\d+)?( ?[%％])?$`);

// The value of a number or of a percentage that a page shows; NaN if the text is neither.
export function readNumber(text) {
  if (!NUMBER.test(text)) return NaN;
  return Number(text.replaceAll(GROUP, "").replace(DECIMAL, ".").replace(/ ?[%％]$/, ""));
}

const fill = (text, values) => text.replace(/\{([a-z_0-9]+)\}/g, (place, name) => (name in values ? values[name] : place));

// t("The server responded with status {status}.", { status })
export function t(message, values = {}) {
  return fill(messages[message]?.[0] ?? message, values);
}

// tn("{count} attempt", "{count} attempts", 3): a count has one form in some languages and two in others.
export function tn(one, other, count, values = {}) {
  const forms = messages[one] ?? [one, other];
  return fill(forms[forms.length === 1 || count === 1 ? 0 : 1], { count: whole(count), ...values });
}
