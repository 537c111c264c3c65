// Charts: data-chart is the address of a chart's numbers, which are fetched again after a tick.
import { locale, number, t, tn, whole } from "./language.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const OUTCOMES = [
  ["delivered", "--mark-good", (count) => tn("{count} delivered", "{count} delivered", count)],
  ["failed", "--mark-bad", (count) => tn("{count} failed", "{count} failed", count)],
  ["sender_errors", "--mark-sender-error", (count) => tn("{count} sender error", "{count} sender errors", count)],
  ["dropped", "--mark-warn", (count) => tn("{count} dropped", "{count} dropped", count)],
];
const HEIGHT = 190, LOW_HEIGHT = 130; // of the charts of attempts and of durations
const drawn = []; // { figure, plots }

function shortCount(value) {
  return value >= 1e6 ? `${number(value / 1e6)}M` : value >= 1e3 ? `${number(value / 1e3)}k` : number(value);
}

function shortTime(ms) {
  if (ms === null || ms === undefined) return "";
  // A unit is used from twice its size on: 100 s is not "2 min".
  const shown = (size) => ({ n: number(ms / size, { maximumSignificantDigits: ms / size < 100 ? 2 : 3 }) });
  if (ms < 1000) return t("{n} ms", shown(1));
  if (ms < 120000) return t("{n} s", shown(1000));
  return ms < 7200000 ? t("{n} min", shown(60000)) : t("{n} h", shown(3600000));
}

const sum = (values) => values.reduce((all, value) => all + value, 0);

// The steps of a chart from one place to another, in words: counts, the part that was delivered, and durations.
function inWords(numbers, from, to) {
  const counts = OUTCOMES.map(([name, , text]) => [sum(numbers[name].slice(from, to + 1)), text]);
  const all = sum(counts.map(([count]) => count));
  if (!all) return t("no attempts");
  const part = (100 * counts[0][0]) / all;
  const rate = part === 100 ? whole(100) : number(part, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const texts = counts.filter(([count]) => count).map(([count, text]) => text(count));
  const outcomes = texts.reduce((first, second) => t("{first}, {second}", { first, second }));
  if (from !== to || numbers.p50[from] === null) return t("{outcomes}; {rate} % delivered", { outcomes, rate });
  const [median, tail] = [shortTime(numbers.p50[from]), shortTime(numbers.p99[from])];
  return t("{outcomes}; {rate} % delivered; p50 {median}, p99 {tail}", { outcomes, rate, median, tail });
}

function stepOf(numbers) {
  return numbers.at.length > 1 ? numbers.at[1] - numbers.at[0] : 60;
}

function spanText(numbers, from, to) {
  const days = numbers.at.at(-1) - numbers.at[0] > 2 * 86400;
  const form = new Intl.DateTimeFormat(locale, { ...(days && { month: "short", day: "numeric" }), hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return form.formatRange(new Date(numbers.at[from] * 1000), new Date((numbers.at[to] + stepOf(numbers)) * 1000));
}

// The steps of the span that was chosen, which is kept as times: new steps move the others.
function placesOf({ numbers, chosen }) {
  if (!chosen) return null;
  const from = numbers.at.findIndex((at) => at >= chosen[0]);
  const to = numbers.at.findLastIndex((at) => at < chosen[1]);
  return from < 0 || to < from ? null : [from, to];
}

// The line under a chart: what the pointer is at, the span that was chosen, or the whole chart.
function show(chart) {
  const { figure, numbers, at } = chart;
  if (!numbers?.at.length) return;
  const last = numbers.at.length - 1;
  const chosen = placesOf(chart);
  const [from, to] = chosen || (at === null || at > last ? [0, last] : [at, at]);
  figure.querySelector(".chart-words").textContent = t("{span}: {outcomes}", { span: spanText(numbers, from, to), outcomes: inWords(numbers, from, to) });
  const links = figure.querySelector(".chart-links");
  links.hidden = !chosen;
  showCauses(chart, chosen);
  if (!chosen) return;
  const iso = (seconds) => new Date(seconds * 1000).toISOString();
  const span = `since:${iso(numbers.at[from])} until:${iso(numbers.at[to] + stepOf(numbers))}`;
  for (const link of links.querySelectorAll("a")) {
    link.href = `${link.dataset.path}?${new URLSearchParams({ q: `${link.dataset.words} ${span} ${figure.dataset.query}`.trim() })}`;
  }
}

const causesOf = ({ figure }) => figure.querySelector(".chart-causes");

// Why deliveries of the chosen span have not arrived; asked again when its counts have changed.
function showCauses(chart, places) {
  const { figure, numbers } = chart;
  const place = causesOf(chart);
  if (!place) return;
  place.hidden = !places;
  const asked = places ? `${chart.chosen} ${inWords(numbers, ...places)}` : "";
  if (!places || chart.asked === asked) return;
  chart.asked = asked;
  const iso = (seconds) => new Date(seconds * 1000).toISOString();
  const q = `since:${iso(numbers.at[places[0]])} until:${iso(numbers.at[places[1]] + stepOf(numbers))} ${figure.dataset.query}`.trim();
  fetch(`${place.dataset.path}?${new URLSearchParams({ q })}`, { headers: { "HX-Request": "true" } })
    .then((response) => (response.ok ? response.text() : ""))
    .then((text) => {
      const found = new DOMParser().parseFromString(text, "text/html").body;
      if (chart.asked === asked) place.replaceChildren(...found.childNodes);
    })
    .catch(() => (chart.asked = "")); // The indicator of the live stream shows that the server does not respond.
}

function mark(chart) {
  for (const plot of chart.plots || []) {
    const [left, right] = (chart.chosen || [0, 0]).map((at) => plot.valToPos(at, "x"));
    const width = chart.chosen ? Math.max(right - left, 2) : 0;
    plot.setSelect({ left: width && left, top: 0, width, height: width && plot.over.clientHeight }, false);
  }
}

function choose(chart, from, to) {
  const { at } = chart.numbers;
  causesOf(chart)?.replaceChildren();
  chart.chosen = from === null ? null : [at[from], at[to] + stepOf(chart.numbers)];
  mark(chart);
  show(chart);
}

// The pointer over a plot, and a span that is dragged or clicked on it.
function hooks(chart) {
  return {
    setCursor: [(plot) => {
      chart.at = plot.cursor.idx ?? null;
      if (!chart.chosen) show(chart);
    }],
    setSelect: [(plot) => {
      const { left, width } = plot.select;
      chart.dragged = width > 0;
      if (width > 0) choose(chart, plot.posToIdx(left), plot.posToIdx(left + width));
    }],
    ready: [(plot) => {
      plot.over.addEventListener("mousedown", () => (chart.dragged = false));
      plot.over.addEventListener("click", () => {
        if (!chart.dragged && plot.cursor.idx !== null) choose(chart, plot.cursor.idx, plot.cursor.idx);
      });
      if (chart.chosen) mark(chart); // It was drawn again, in other colours.
    }],
  };
}

// Hours for up to two days, dates for longer times; always in the viewer's time zone.
function clock(plot, splits) {
  const days = plot.scales.x.max - plot.scales.x.min > 2 * 86400;
  const form = new Intl.DateTimeFormat(locale, days ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  let last = "";
  return splits.map((it) => {
    const text = form.format(new Date(it * 1000));
    if (text === last) return "";
    return (last = text);
  });
}

const FONT = "12px system-ui, sans-serif";

function widthOf(text) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = FONT;
  return pen.measureText(text).width;
}

// The title stands beside the chart, upright. One that is longer than the chart is high is left out: the legend says it.
// An axis is as wide as its widest value: units have other lengths in other languages.
function axes(values, title, height) {
  const line = { stroke: css("--ink-soft"), font: FONT };
  const grid = { stroke: css("--line"), width: 1 };
  const widest = (_, texts) => Math.max(48, 16 + Math.max(0, ...(texts || []).map(widthOf)));
  return [
    { ...line, grid: { show: false }, ticks: { show: false }, size: 28, space: 70, values: (plot, splits) => clock(plot, splits) },
    { ...line, label: widthOf(title) <= height ? title : null, labelSize: 18, labelFont: FONT, grid, ticks: { show: false }, size: widest, values: (_, splits) => splits.map((it) => (it === null ? "" : values(it))) },
  ];
}

function options(box, height, more) {
  return { width: box.clientWidth, height, legend: { show: false }, cursor: { y: false, drag: { x: true, y: false, setScale: false } }, ...more };
}

// Each series is the sum of itself and those before it; the tallest is drawn first.
function stacked(numbers) {
  let below = numbers.at.map(() => 0);
  const sums = OUTCOMES.map(([name]) => (below = numbers[name].map((value, place) => value + below[place])));
  return [numbers.at, ...sums.reverse()];
}

function outcomes(box, chart) {
  const { numbers } = chart;
  const bars = window.uPlot.paths.bars({ size: [0.75, 40], gap: 1 });
  const series = [...OUTCOMES].reverse().map(([name, colour]) => ({
    label: name, fill: css(colour), width: 0, paths: bars, points: { show: false },
  }));
  return new window.uPlot(options(box, HEIGHT, {
    axes: axes(shortCount, t("attempts"), HEIGHT),
    hooks: hooks(chart),
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, 4)] } },
    series: [{}, ...series],
  }), stacked(numbers), box);
}

function took(box, chart) {
  const { numbers, figure } = chart;
  const line = (label, colour, dash) => ({ label, stroke: css(colour), width: 1.75, dash, spanGaps: false, points: { show: true, size: 4, fill: css(colour) } });
  const filter = (_, splits) => splits.map((it) => (Math.abs(Math.log10(it) % 1) < 1e-6 ? it : null));
  const both = axes(shortTime, figure.dataset.measure, LOW_HEIGHT);
  both[1].filter = filter;
  both[1].grid.filter = filter;
  return new window.uPlot(options(box, LOW_HEIGHT, {
    axes: both,
    hooks: hooks(chart),
    scales: { y: { distr: 3, range: (_, low, high) => [10 ** Math.floor(Math.log10(low || 1)), 10 ** Math.ceil(Math.log10((high || 10) * 1.01))] } },
    series: [{}, line("p50", "--accent"), line("p99", "--mark-warn", [5, 3])],
  }), [numbers.at, numbers.p50, numbers.p99], box);
}

async function load(figure) {
  const response = await fetch(figure.dataset.chart, { headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(`${response.status}`);
  return response.json();
}

function draw(chart, numbers) {
  const { figure } = chart;
  const hasData = OUTCOMES.some(([name]) => numbers[name].some((value) => value > 0));
  figure.querySelector(".chart-none").hidden = hasData;
  for (const part of figure.querySelectorAll(".plot, .legend")) part.hidden = !hasData;
  chart.numbers = numbers;
  figure.querySelector(".chart-foot").hidden = !hasData;
  if (!hasData) return;
  show(chart);
  if (chart.plots) {
    chart.plots[0].setData(stacked(numbers));
    chart.plots[1].setData([numbers.at, numbers.p50, numbers.p99]);
    mark(chart);
    return;
  }
  const [one, two] = figure.querySelectorAll("[data-plot]");
  chart.plots = [outcomes(one, chart), took(two, chart)];
}

function redraw(chart) {
  for (const plot of chart.plots || []) plot.destroy();
  chart.plots = null;
  if (chart.numbers) draw(chart, chart.numbers);
}

async function refresh(chart) {
  if (chart.busy) return;
  chart.busy = true;
  try {
    draw(chart, await load(chart.figure));
  } catch {
    // The indicator of the live stream shows that the server does not respond.
  } finally {
    chart.busy = false;
  }
}

export function startCharts() {
  for (const figure of document.querySelectorAll("[data-chart]")) {
    const chart = { figure, plots: null, numbers: null, busy: false, at: null, chosen: null };
    figure.querySelector(".chart-clear").addEventListener("click", () => choose(chart, null));
    drawn.push(chart);
    refresh(chart);
    let width = 0;
    new ResizeObserver(() => {
      if (figure.clientWidth === width) return;
      width = figure.clientWidth;
      for (const plot of chart.plots || []) plot.setSize({ width, height: plot.height });
      queueMicrotask(() => chart.chosen && mark(chart)); // after uPlot has moved it by itself
    }).observe(figure);
  }
  let waiting = null;
  addEventListener("tick", () => {
    waiting ??= setTimeout(() => {
      waiting = null;
      drawn.forEach(refresh);
    }, 2000);
  });
  addEventListener("theme", () => drawn.forEach(redraw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(redraw));
}
