// The outage on the chart of a simulation: drag it, or one of its ends; the arrow keys move an end, too.
import { t } from "./language.js";

const WIDTH = 1200, LEFT = 92, RIGHT = 1176; // the time axis of the picture
const HEIGHT = 100; // of the drawing over it, which is stretched
const LONGEST = 14 * 86400000;
const STEPS = [60000, 300000, 900000, 1800000, 3600000, 7200000, 10800000];
const known = new WeakSet();

// As people type it into the fields of the simulator: 1h30m.
function durationText(ms) {
  let left = Math.round(ms / 1000);
  let text = "";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    if (left >= size) text += `${Math.floor(left / size)}${unit}`;
    left %= size;
  }
  return text || "0s";
}

class Outage {
  constructor(frame) {
    this.frame = frame;
    this.run = Number(frame.dataset.run);
    this.from = Number(frame.dataset.from);
    this.to = Number(frame.dataset.to);
    this.step = STEPS.find((one) => this.run / one <= 240) || STEPS.at(-1);
    const drawing = this.make("svg", { class: "sim-over", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" });
    this.bar = this.make("rect", { class: "sim-outage", y: 0, height: HEIGHT });
    this.ends = ["from", "to"].map((name) => this.end(name));
    drawing.append(this.bar, ...this.ends);
    this.label = document.createElement("p");
    this.label.className = "sim-label small";
    frame.append(drawing);
    frame.closest(".sim-box").after(this.label);
    frame.addEventListener("pointerdown", (event) => this.begin(event));
    this.show();
  }

  make(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  end(name) {
    const end = this.make("rect", { class: "sim-end", y: 0, width: 10, height: HEIGHT, tabindex: 0, role: "slider", "data-end": name });
    end.setAttribute("aria-label", name === "from" ? t("Down from") : t("Down until"));
    end.setAttribute("aria-valuemin", "0");
    end.setAttribute("aria-valuemax", LONGEST / 60000);
    end.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
      if (!by) return;
      event.preventDefault();
      this.move(name, this[name] + by * this.step);
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.simulate(), 700);
    });
    return end;
  }

  move(name, at) {
    const rounded = Math.round(at / this.step) * this.step;
    if (name === "from") this.from = Math.min(Math.max(rounded, 0), this.to - this.step);
    else this.to = Math.min(Math.max(rounded, this.from + this.step), LONGEST);
    this.show();
  }

  place(at) {
    return LEFT + (RIGHT - LEFT) * Math.min(at / this.run, 1);
  }

  show() {
    const left = this.place(this.from);
    this.bar.setAttribute("x", left);
    this.bar.setAttribute("width", Math.max(this.place(this.to) - left, 2));
    const [length, from, to] = [this.to - this.from, this.from, this.to].map(durationText);
    this.label.textContent = this.to > this.run
      ? t("Down for {length}, from {from} to {to}: longer than the chart, so the run becomes longer.", { length, from, to })
      : t("Down for {length}, from {from} to {to}.", { length, from, to });
    this.ends.forEach((end) => {
      const at = this[end.dataset.end];
      end.setAttribute("x", this.place(at) - 5);
      end.setAttribute("aria-valuenow", Math.round(at / 60000));
      end.setAttribute("aria-valuetext", durationText(at));
    });
  }

  timeAt(event) {
    const box = this.frame.getBoundingClientRect();
    return (this.run * ((WIDTH * (event.clientX - box.left)) / box.width - LEFT)) / (RIGHT - LEFT);
  }

  // An end is dragged, the whole outage is moved, or a new one is drawn beside it.
  begin(event) {
    if (event.button !== 0) return;
    const begun = this.timeAt(event);
    if (begun < -this.step || begun > this.run + this.step) return;
    event.preventDefault();
    const { from, to } = this;
    const end = event.target.dataset.end;
    const isInside = event.target === this.bar;
    let hasMoved = false;
    const moved = (next) => {
      const at = this.timeAt(next);
      if (Math.abs(at - begun) > this.step / 2) hasMoved = true;
      if (!hasMoved) return;
      if (end) this.move(end, at);
      else if (isInside) {
        this.to = Math.max(to, this.to); // so that the begin can move behind the old end
        const by = Math.max(Math.round((at - begun) / this.step) * this.step, -from);
        this.from = from + by;
        this.to = Math.min(to + by, LONGEST);
        this.show();
      } else {
        [this.from, this.to] = [Math.max(Math.min(begun, at), 0), Math.max(begun, at)];
        this.move("from", this.from);
        this.move("to", this.to);
      }
    };
    const ended = () => {
      removeEventListener("pointermove", moved);
      removeEventListener("pointerup", ended);
      removeEventListener("pointercancel", ended);
      if (hasMoved) this.simulate();
    };
    addEventListener("pointermove", moved);
    addEventListener("pointerup", ended);
    addEventListener("pointercancel", ended);
  }

  simulate() {
    const form = document.getElementById("outage-form");
    form.elements.from.value = durationText(this.from);
    form.elements.to.value = durationText(this.to);
    form.requestSubmit();
  }
}

export function startOutages() {
  for (const frame of document.querySelectorAll("[data-outage]")) {
    if (known.has(frame)) continue;
    known.add(frame);
    new Outage(frame);
  }
}
