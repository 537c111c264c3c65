// Charts: data-chart is the address of a chart's numbers, which are fetched again after a tick.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const OUTCOMES = [
  ["delivered", "--mark-good"],
  ["failed", "--mark-bad"],
  ["sender_errors", "--mark-sender-error"],
  ["dropped", "--mark-warn"],
];
const drawn = []; // { figure, plots }

function shortCount(value) {
  return value >= 1e6 ? `${value / 1e6}M` : value >= 1e3 ? `${value / 1e3}k` : `${value}`;
}

function shortTime(ms) {
  if (ms === null || ms === undefined) return "";
  return ms < 1000 ? `${+ms.toPrecision(2)} ms` : ms < 60000 ? `${+(ms / 1000).toPrecision(2)} s` : `${Math.round(ms / 60000)} min`;
}

// Hours for up to two days, dates for longer times; always in the viewer's time zone.
function clock(plot, splits) {
  const days = plot.scales.x.max - plot.scales.x.min > 2 * 86400;
  const form = new Intl.DateTimeFormat(undefined, days ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  let last = "";
  return splits.map((it) => {
    const text = form.format(new Date(it * 1000));
    if (text === last) return "";
    return (last = text);
  });
}

function axes(values, size) {
  const line = { stroke: css("--ink-soft"), font: "12px system-ui, sans-serif" };
  const grid = { stroke: css("--line"), width: 1 };
  return [
    { ...line, grid: { show: false }, ticks: { show: false }, size: 28, space: 70, values: (plot, splits) => clock(plot, splits) },
    { ...line, grid, ticks: { show: false }, size, values: (_, splits) => splits.map((it) => (it === null ? "" : values(it))) },
  ];
}

function options(box, height, more) {
  return { width: box.clientWidth, height, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } }, ...more };
}

// Each series is the sum of itself and those before it; the tallest is drawn first.
function stacked(numbers) {
  let below = numbers.at.map(() => 0);
  const sums = OUTCOMES.map(([name]) => (below = numbers[name].map((value, place) => value + below[place])));
  return [numbers.at, ...sums.reverse()];
}

function outcomes(box, numbers) {
  const bars = window.uPlot.paths.bars({ size: [0.75, 40], gap: 1 });
  const series = [...OUTCOMES].reverse().map(([name, colour]) => ({
    label: name, fill: css(colour), width: 0, paths: bars, points: { show: false },
  }));
  return new window.uPlot(options(box, 190, {
    axes: axes(shortCount, 48),
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, 4)] } },
    series: [{}, ...series],
  }), stacked(numbers), box);
}

function took(box, numbers) {
  const line = (label, colour, dash) => ({ label, stroke: css(colour), width: 1.75, dash, spanGaps: false, points: { show: true, size: 4, fill: css(colour) } });
  const filter = (_, splits) => splits.map((it) => (Math.abs(Math.log10(it) % 1) < 1e-6 ? it : null));
  const both = axes(shortTime, 56);
  both[1].filter = filter;
  both[1].grid.filter = filter;
  return new window.uPlot(options(box, 130, {
    axes: both,
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
  if (!hasData) return;
  if (chart.plots) {
    chart.plots[0].setData(stacked(numbers));
    chart.plots[1].setData([numbers.at, numbers.p50, numbers.p99]);
    return;
  }
  const [one, two] = figure.querySelectorAll("[data-plot]");
  chart.plots = [outcomes(one, numbers), took(two, numbers)];
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
    const chart = { figure, plots: null, numbers: null, busy: false };
    drawn.push(chart);
    refresh(chart);
    let width = 0;
    new ResizeObserver(() => {
      if (figure.clientWidth === width) return;
      width = figure.clientWidth;
      for (const plot of chart.plots || []) plot.setSize({ width, height: plot.height });
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
