// The line chart: curves by series, a band where several seeds ran, targets as dotted lines, a reading at the pointer.
const MANY = 12; // curves, beyond which bands would only hide them
const DASHES = ["", "7 4", "2 4"];
const colour = (index) => `var(--c${index % 7})`;
const dash = (index) => DASHES[Math.floor(index / 7) % DASHES.length];

function swatch(index) {
  return shape("svg", { width: 22, height: 10, "aria-hidden": "true" },
    shape("line", { x1: 1, x2: 21, y1: 5, y2: 5, "stroke-width": 3, "stroke-dasharray": dash(index), style: `stroke:${colour(index)}` }));
}

function points(series, metric, axis, smooth) {
  const values = (smooth ? series.curve.smooth : series.curve)[metric];
  return series.curve[axis].map((x, i) => [x, values[i], i]).filter(([x, y]) => x !== null && y !== null);
}

function drawCurves(place, shown, { metric, axis, smooth, targets }) {
  const width = Math.max(280, place.clientWidth || 800);
  const height = clamp(width * 0.5, 250, 460);
  const box = { left: 52, right: width - 14, top: 12, bottom: height - 40 };
  const lines = shown.map((series) => ({ series, at: points(series, metric, axis, smooth) })).filter(({ at }) => at.length);
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describeCurves(lines, metric, axis) });
  place.replaceChildren(svg);
  const all = lines.flatMap(({ at }) => at);
  const highest = Math.max(...all.map(([, y]) => y), 0);
  const lowest = Math.min(...all.map(([, y]) => y), highest);
  const yRange = metric === "accuracy" ? [0, Math.min(1, Math.max(highest, ...targets.map((t) => t.accuracy)) * 1.06 || 1)]
    : [Math.max(0, lowest - 0.08 * (highest - lowest)), highest * 1.04 || 1];
  const xEnd = Math.max(...all.map(([x]) => x), axis === "rounds" ? 2 : 1e-9);
  const xStart = axis === "rounds" ? 1 : 0;
  const sx = (x) => box.left + ((x - xStart) / (xEnd - xStart || 1)) * (box.right - box.left);
  const sy = (y) => box.bottom - ((y - yRange[0]) / (yRange[1] - yRange[0] || 1)) * (box.bottom - box.top);

  for (const y of ticks(yRange[0], yRange[1], height / 55)) {
    svg.append(shape("line", { x1: box.left, x2: box.right, y1: sy(y), y2: sy(y), class: "gridline" }),
      shape("text", { x: box.left - 8, y: sy(y) + 4, "text-anchor": "end" }, metric === "accuracy" ? Math.round(100 * y) + " %" : String(y)));
  }
  for (const x of ticks(xStart, xEnd, width / 110, axis === "rounds" || axis === "updates")) {
    svg.append(shape("text", { x: clamp(sx(x), box.left, box.right - 10), y: box.bottom + 18, "text-anchor": "middle", class: "x-tick" }, show[axis](x)));
  }
  const names = { rounds: "round", updates: "client updates", bytes: "bytes moved", seconds: "simulated time", epsilon: "epsilon" };
  svg.append(shape("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, names[axis]));
  if (metric === "accuracy") {
    for (const target of targets) {
      svg.append(shape("line", { x1: box.left, x2: box.right, y1: sy(target.accuracy), y2: sy(target.accuracy), class: "target" }));
    }
  }
  for (const { series, at } of lines) {
    if (metric === "accuracy" && !smooth && lines.length <= MANY && series.curve.low.length) {
      const edge = (name) => at.map(([x, , i]) => `${sx(x).toFixed(1)},${sy(series.curve[name][i]).toFixed(1)}`);
      svg.append(shape("polygon", { points: [...edge("high"), ...edge("low").reverse()].join(" "), class: "band", style: `fill:${colour(series.index)}` }));
    }
  }
  for (const { series, at } of lines) {
    const d = at.map(([x, y], i) => `${i ? "L" : "M"}${sx(x).toFixed(1)},${sy(y).toFixed(1)}`).join("");
    svg.append(shape("path", { d, class: "curve", "data-series": series.label, "stroke-dasharray": dash(series.index), style: `stroke:${colour(series.index)}` }));
    if (at.length === 1) svg.append(shape("circle", { cx: sx(at[0][0]), cy: sy(at[0][1]), r: 4, style: `fill:${colour(series.index)}` }));
  }
  for (const target of metric === "accuracy" ? targets : []) {
    svg.append(shape("text", { x: box.left + 6, y: sy(target.accuracy) - 4, class: "target-name" },
      `${Math.round(100 * target.share)} % of bound` + (width < 600 ? "" : ` = ${show.accuracy(target.accuracy)}`)));
  }
  if (!lines.length) svg.append(shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to show: choose a curve above"));
  else readAtPointer(svg, lines, { box, sx, sy, xStart, xEnd, width, metric, axis });
}

function readAtPointer(svg, lines, { box, sx, sy, xStart, xEnd, width, metric, axis }) {
  const hair = shape("line", { class: "hair", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const marks = lines.map(({ series }) => shape("circle", { r: 4, visibility: "hidden", style: `fill:${colour(series.index)}` }));
  svg.append(hair, ...marks);
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const px = (event.clientX - frame.left) * (width / frame.width);
    const x = xStart + ((px - box.left) / (box.right - box.left)) * (xEnd - xStart);
    if (x < xStart || x > xEnd * 1.01) return;
    const near = lines.map(({ at }) => at.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)));
    hair.setAttribute("x1", px); hair.setAttribute("x2", px); hair.setAttribute("visibility", "visible");
    near.forEach(([nx, ny], i) => {
      marks[i].setAttribute("cx", sx(nx)); marks[i].setAttribute("cy", sy(ny)); marks[i].setAttribute("visibility", "visible");
    });
    const read = lines.map(({ series }, i) => [near[i][1], `${show[metric](near[i][1])}  ${series.label}`]).sort((a, b) => b[0] - a[0]);
    const where = axis === "rounds" ? `round ${show.rounds(x)}` : axis === "updates" ? `${show.updates(x)} client updates`
      : axis === "epsilon" ? `epsilon ${show.epsilon(x)}` : show[axis](x);
    tip.show(event, [where, ...read.slice(0, 12).map(([, text]) => text)].join("\n"));
  });
  svg.addEventListener("pointerleave", () => {
    tip.hide();
    for (const mark of [hair, ...marks]) mark.setAttribute("visibility", "hidden");
  });
}

function describeCurves(lines, metric, axis) {
  const last = lines.map(({ series, at }) => `${series.label} ends at ${show[metric](at[at.length - 1][1])}`);
  return `${metric.replace("_", " ")} over ${axis}: ${last.join("; ") || "no curve"}`;
}
