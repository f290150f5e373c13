// The page: one data set at a time; what was chosen stays chosen when a live run brings new numbers.
let data = JSON.parse(byId("data").textContent);
const state = { dataset: 0, hidden: new Set(), sort: {}, run: null, alpha: null }; // of several alphas, the first is shown first
const current = () => data.datasets[state.dataset];
const alphas = () => [...new Set(current().series.map((one) => one.alpha).filter((alpha) => alpha !== null))];
const chosen = () => current().series.filter((one) => state.alpha === "all" || one.alpha === null || one.alpha === state.alpha);
const chosenRuns = () => { const labels = new Set(chosen().map((one) => one.label)); return current().runs.filter((run) => labels.has(run.series)); };

function drawAll() {
  const dataset = current();
  byId("title").textContent = data.datasets.map((one) => one.name).join(", ") || "no runs";
  byId("live").hidden = !data.live;
  drawBroken();
  for (const section of document.querySelectorAll("main > section")) section.hidden = !dataset;
  byId("headline").textContent = dataset ? "" : "There is nothing to show yet.";
  if (!dataset) return;
  if (state.alpha !== "all" && !alphas().includes(state.alpha)) state.alpha = alphas()[0] || "all";
  byId("headline").textContent = dataset.headlines[state.alpha];
  options(byId("alpha"), ["all", ...alphas()], ["all", ...alphas()].indexOf(state.alpha));
  byId("alpha-choice").hidden = alphas().length < 2;
  curved().forEach((series, i) => { series.index = i; });
  options(byId("dataset"), data.datasets.map((one) => one.name), state.dataset);
  byId("dataset-choice").hidden = data.datasets.length < 2;
  offerEpsilon(dataset.private);
  drawLegend();
  drawChart();
  drawTables();
  options(byId("run"), chosenRuns().map((run) => run.label), chosenRun());
  drawRun();
  drawReproduce();
  byId("footer").textContent = `Made by fedseq ${data.version}. Everything on this page is in this file.`;
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map((name, i) => make("option", { value: i }, name)));
  select.selectedIndex = chosen;
}

// Only where some run promises one.
function offerEpsilon(there) {
  byId("over-epsilon").hidden = byId("over-epsilon").disabled = !there;
  if (!there && byId("axis").value === "epsilon") byId("axis").value = "rounds";
}

function drawBroken() {
  const box = byId("broken");
  box.hidden = !data.broken.length;
  box.replaceChildren(make("strong", {}, "Not shown:"),
    make("ul", {}, ...data.broken.map((one) => make("li", {}, `${one.folder}: ${one.reason}`))));
}

const curved = () => chosen().filter((series) => series.curve);

function drawLegend() {
  const chips = curved().map((series) => {
    const final = series.cells[1].text;
    return make("button", {
      type: "button", class: "chip", "aria-pressed": String(!state.hidden.has(series.label)), "data-label": series.label,
      onclick: () => { toggle(series.label); },
    }, swatch(series.index), make("b", {}, series.label), make("span", {}, final));
  });
  const all = (hide) => () => { state.hidden = new Set(hide ? curved().map((series) => series.label) : []); drawLegend(); drawChart(); };
  const both = chips.length < 2 ? [] : [make("button", { type: "button", class: "plain", onclick: all(false) }, "all"),
    make("button", { type: "button", class: "plain", onclick: all(true) }, "none")];
  byId("legend").replaceChildren(...chips, ...both);
}

function toggle(label) {
  if (!state.hidden.delete(label)) state.hidden.add(label);
  drawLegend();
  drawChart();
  for (const chip of document.querySelectorAll(".chip")) if (chip.dataset.label === label) chip.focus();
}

function drawChart() {
  const axis = byId("axis").value, metric = byId("metric").value;
  drawCurves(byId("chart"), curved().filter((series) => !state.hidden.has(series.label)),
    { metric, axis, smooth: byId("smooth").checked, targets: current().targets });
  const notes = [];
  if (axis === "seconds") notes.push(`Simulated clients: ${data.devices}. A hop takes steps/speed + bytes/bandwidth; a round waits for its slowest chain, FedSeqInter's slots only at merges.`);
  if (axis === "epsilon") notes.push("Spent by the client that took part most often. Runs without noise promise nothing, and have no curve here.");
  const seeds = metric === "accuracy" && curved().some((series) => series.curve.low.length);
  if (seeds) notes.push(`Lines are means over seeds${curved().length - state.hidden.size <= MANY ? ", bands their range" : ""}.`);
  byId("chart-note").textContent = notes.join(" ");
}

function drawTables() {
  const { targets, bound } = current();
  const columns = [["algorithm", ""], ["final accuracy", ""], ["rounds", ""], ["seeds", ""]];
  const epsilon = current().private ? [["epsilon", ""]] : [];
  columns.push(...epsilon);
  for (const target of targets) {
    const over = `${Math.round(100 * target.share)} % = ${show.accuracy(target.accuracy)}`;
    columns.push(["first", over], ["mean of 5", over], ["speedup", over]);
  }
  drawTable("convergence", columns, "cells");
  byId("table-note").textContent = bound
    ? `Targets are shares of ${show.accuracy(bound.accuracy)} (${bound.source}). first: the first evaluation at the target; mean of 5: the first five evaluations in a row whose mean is there; speedup: rounds of the FedAvg that is there first, over ours.` : "";
  const federated = chosen().some((one) => one.costs.length);
  byId("cost-section").hidden = !federated;
  if (!federated) return;
  drawTable("costs", ["algorithm", "rounds", "client updates", "bytes moved", "simulated time", "speedup in time"].map((name) => [name, ""]).concat(epsilon), "costs");
  byId("cost-note").textContent = `A chain of clients trains one after another, so fewer rounds may still take longer. Simulated clients: ${data.devices}.`;
}

function drawTable(id, columns, kind) {
  const all = chosen().filter((one) => one[kind].length);
  const sort = state.sort[id];
  const rows = sort ? [...all].sort((a, b) => order(a[kind][sort.column].sort, b[kind][sort.column].sort, sort.down)) : all;
  const starts = columns.map(([, over], i) => (i > 0 && over !== columns[i - 1][1] ? "first" : null));
  const head = make("thead", {}, overHead(columns, starts),
    make("tr", {}, ...columns.map(([name], i) => make("th", { scope: "col", "aria-sort": sorted(id, i), class: starts[i] },
      make("button", { type: "button", onclick: () => sortBy(id, i) }, name)))));
  const best = columns.map(([name], i) => bestValue(all, kind, i, name));
  const body = make("tbody", {}, ...rows.map((one) => make("tr", {}, ...one[kind].map((cell, i) => (i
    ? make("td", { class: [starts[i], one.curve && cell.sort !== null && cell.sort === best[i] ? "best" : null].filter(Boolean).join(" ") || null }, cell.text)
    : make("td", {}, one.curve ? make("span", { class: "dot", style: `background:${colour(one.index)}` }) : null, cell.text))))));
  byId(id).replaceChildren(head, body);
  markCut();
}

// A table that is wider than the screen says so below itself.
function markCut() {
  for (const box of document.querySelectorAll(".scroll")) box.classList.toggle("cut", box.scrollWidth > box.clientWidth + 1);
}

function overHead(columns, starts) {
  if (!columns.some(([, over]) => over)) return null;
  const groups = [];
  columns.forEach(([, text], i) => {
    if (i && text === columns[i - 1][1]) groups[groups.length - 1].span += 1;
    else groups.push({ text, span: 1, starts: starts[i] });
  });
  return make("tr", { class: "over" }, ...groups.map((group) => make("th", { colspan: group.span, scope: "colgroup", class: group.starts }, group.text)));
}

// The most accurate, and the soonest and cheapest at a target, are set in bold.
function bestValue(all, kind, column, name) {
  const values = all.filter((one) => one.curve).map((one) => one[kind][column].sort).filter((value) => typeof value === "number");
  if (values.length < 2 || ["algorithm", "seeds", "epsilon"].includes(name) || (kind === "cells" && name === "rounds")) return null;
  return name === "final accuracy" || name.startsWith("speedup") ? Math.max(...values) : Math.min(...values);
}

function order(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null); // what has no value comes last, either way
  const ascending = typeof a === "string" ? a.localeCompare(b) : a - b;
  return down ? -ascending : ascending;
}

function sorted(id, column) {
  const sort = state.sort[id];
  return sort && sort.column === column ? (sort.down ? "descending" : "ascending") : null;
}

function sortBy(id, column) {
  const sort = state.sort[id];
  state.sort[id] = { column, down: Boolean(sort && sort.column === column && !sort.down) };
  drawTables();
  byId(id).querySelectorAll("thead button")[column].focus();
}
