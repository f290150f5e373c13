// Small drawing helpers. Text always goes in as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  return fill(node, attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

const show = {
  accuracy: (value) => (100 * value).toFixed(value > 0.0005 && value < 0.1 ? 2 : 1) + " %",
  loss: (value) => value.toPrecision(3),
  rounds: (value) => Math.round(value).toLocaleString("en"),
  bytes: (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"]),
  seconds: (value) => (value < 90 ? +value.toPrecision(3) + " s" : value < 5400 ? +(value / 60).toPrecision(3) + " min"
    : +(value / 3600).toPrecision(3) + " h"),
};
show.train_loss = show.loss;
show.updates = show.rounds;
show.epsilon = (value) => String(+value.toPrecision(3));

function scaled(value, units) {
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return +value.toPrecision(3) + " " + units[at];
}

// Round numbers that cover a range with about `count` steps; of what is counted, whole ones only.
function ticks(low, high, count, whole = false) {
  const raw = (high - low || 1) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= raw * 0.999 && (!whole || Number.isInteger(one))) || 1;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(+(i * step).toPrecision(12));
  return found;
}

const tip = {
  show(event, text) {
    const box = byId("tip");
    box.textContent = text;
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 16 : event.clientX + 16;
    box.style.left = clamp(left, 4, Math.max(4, innerWidth - width - 4)) + "px";
    box.style.top = clamp(event.clientY - height - 12, 4, innerHeight - height - 4) + "px";
  },
  hide() { byId("tip").hidden = true; },
};

// A heat map of values from 0 to 1. `names` says what a cell is when it is pointed at.
function heatMap(place, rows, { left, bottom, xLabels, yLabels, name, cellHeight, label }) {
  const width = Math.max(220, place.clientWidth || 420);
  const columns = rows[0].length;
  const x0 = left, top = 2, height = rows.length * cellHeight;
  const cell = (width - x0 - 2) / columns;
  const svg = shape("svg", { width, height: height + bottom, viewBox: `0 0 ${width} ${height + bottom}`, role: "img", "aria-label": label });
  svg.append(shape("rect", { x: x0, y: top, width: width - x0 - 2, height, fill: "none", class: "gridline" }));
  rows.forEach((row, j) => row.forEach((value, i) => {
    if (value) svg.append(shape("rect", {
      x: (x0 + i * cell).toFixed(2), y: (top + j * cellHeight).toFixed(2), width: (cell + 0.3).toFixed(2), height: (cellHeight + 0.3).toFixed(2),
      "fill-opacity": clamp(value, 0, 1).toFixed(3), style: "fill:var(--heat)",
    }));
  }));
  for (const [j, text] of yLabels) svg.append(shape("text", { x: x0 - 6, y: top + (j + 0.5) * cellHeight + 4, "text-anchor": "end" }, text));
  for (const [i, text] of xLabels) {
    const x = clamp(x0 + (i + 0.5) * cell, x0 + text.length * 3.5, width - text.length * 3.5);
    svg.append(shape("text", { x, y: height + 17, "text-anchor": "middle" }, text));
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const i = Math.floor(((event.clientX - box.left) * (width / box.width) - x0) / cell);
    const j = Math.floor(((event.clientY - box.top) * (width / box.width) - top) / cellHeight);
    if (i >= 0 && i < columns && j >= 0 && j < rows.length) tip.show(event, name(j, i));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", tip.hide);
  place.replaceChildren(svg);
}

// Positions to label so that the labels do not touch.
function spaced(count, room, size) {
  const step = Math.max(1, Math.ceil((count * size) / Math.max(1, room)));
  return Array.from({ length: count }, (_, i) => i).filter((i) => i % step === 0);
}
