// One run's inside, and how to repeat every run.
function chosenRun() {
  const runs = chosenRuns();
  const kept = runs.findIndex((run) => run.folder === state.run);
  const telling = runs.findIndex((run) => run.superclients);
  return kept >= 0 ? kept : Math.max(0, telling);
}

function drawRun() {
  const run = chosenRuns()[byId("run").selectedIndex];
  byId("state").textContent = run ? `${run.folder}, ${run.state}` : "";
  if (!run) return;
  drawComposition(byId("composition"), run.superclients, run.groups);
  drawPerClass(byId("per-class"), run.per_class);
  drawClients(byId("over-clients"), run.over_clients);
  drawTime(byId("time"), run.seconds);
  drawSkipped(byId("skipped"), run.skipped);
}

const nothing = (place, text) => place.replaceChildren(make("p", { class: "empty" }, text));
const scale = (low, high) => make("div", { class: "scale" }, low, make("i"), high);

function drawComposition(place, counts, groups) {
  if (!counts && groups) return nothing(place, `${groups} superclients, quality unknown: only their clients know the labels.`);
  if (!counts) return nothing(place, "This run has no superclients: its units are single clients.");
  const largest = Math.max(...counts.flat(), 1), classes = counts[0].length;
  const cellHeight = clamp(320 / counts.length, 3, 20);
  heatMap(place, counts.map((row) => row.map((count) => count / largest)), {
    left: 34, bottom: 22, cellHeight, label: `examples of ${classes} classes in ${counts.length} superclients`,
    xLabels: spaced(classes, place.clientWidth || 420, 24).map((c) => [c, String(c)]),
    yLabels: spaced(counts.length, counts.length * cellHeight, 15).map((s) => [s, String(s)]),
    name: (s, c) => `superclient ${s}, class ${c}: ${counts[s][c]} of ${counts[s].reduce((a, b) => a + b, 0)} examples`,
  });
  place.append(scale("0", `${largest} examples; a row per superclient, a column per class`));
}

function drawPerClass(place, perClass) {
  if (!perClass) return nothing(place, "No evaluation by class yet.");
  const { rounds, values } = perClass, classes = values[0].length;
  const cellHeight = clamp(320 / classes, 3, 20);
  heatMap(place, Array.from({ length: classes }, (_, c) => values.map((row) => row[c])), {
    left: 34, bottom: 22, cellHeight, label: `accuracy of ${classes} classes over ${rounds.length} evaluations`,
    xLabels: spaced(rounds.length, place.clientWidth || 420, 64).map((i) => [i, (i ? "" : "round ") + rounds[i]]),
    yLabels: spaced(classes, classes * cellHeight, 15).map((c) => [c, String(c)]),
    name: (c, i) => `class ${c}, round ${rounds[i]}: ${values[i][c] === null ? "no test examples" : show.accuracy(values[i][c])}`,
  });
  place.append(scale("0 %", "100 %; a row per class"));
}

function drawClients(place, found) {
  if (!found) return nothing(place, "Clients were not evaluated one by one. To have it: fedseq run --eval-clients N.");
  const { rounds, tenths, clients, last } = found, cellHeight = 18;
  const range = (tenth) => `${10 * tenth} to ${10 * tenth + 10} %`;
  heatMap(place, Array.from({ length: 10 }, (_, row) => tenths.map((shares) => shares[9 - row])), {
    left: 44, bottom: 22, cellHeight, label: `accuracy on the own examples of ${clients} clients over ${rounds.length} evaluations`,
    xLabels: spaced(rounds.length, place.clientWidth || 420, 64).map((i) => [i, (i ? "" : "round ") + rounds[i]]),
    yLabels: [0, 5, 9].map((row) => [row, `${100 - 10 * row} %`]),
    name: (row, i) => `round ${rounds[i]}: ${Math.round(clients * tenths[i][9 - row])} of ${clients} clients at ${range(9 - row)}`,
  });
  place.append(scale("0 %", "100 % of the clients; a row for each tenth of accuracy"));
  const words = Object.entries(last).filter(([, value]) => value !== null).map(([name, value]) => `${name.replace("_", " ")} ${show.accuracy(value)}`);
  place.append(make("p", { class: "note" }, `${clients} clients, round ${rounds[rounds.length - 1]}: ${words.join(", ")}`));
}

function drawTime(place, seconds) {
  const parts = Object.entries(seconds).filter(([, value]) => value > 0);
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  if (!total) return nothing(place, "No timing yet.");
  place.replaceChildren(
    make("div", { class: "split", role: "img", "aria-label": parts.map(([name, value]) => `${name} ${show.seconds(value)}`).join(", ") },
      ...parts.map(([, value], i) => make("div", { style: `width:${(100 * value) / total}%;background:${colour(i)}` }))),
    make("div", { class: "key" }, ...parts.map(([name, value], i) => make("span", {},
      make("span", { class: "dot", style: `background:${colour(i)}` }), `${name} ${show.seconds(value)} (${Math.round((100 * value) / total)} %)`)),
      make("span", {}, `total ${show.seconds(total)}`)));
}

function drawSkipped(place, skipped) {
  if (!skipped.length) return nothing(place, "None: every hop of every chain was trained and taken.");
  const few = (values) => values.slice(0, 8).join(", ") + (values.length > 8 ? ", ..." : "");
  place.replaceChildren(make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...["reason", "hops", "clients", "rounds"].map((name) => make("th", { style: "padding:.35rem .7rem" }, name)))),
    make("tbody", {}, ...skipped.map((one) => make("tr", {}, make("td", {}, one.reason), make("td", {}, String(one.count)),
      make("td", {}, few(one.clients)), make("td", {}, few(one.rounds))))))),
    make("p", { class: "scroll-hint" }, "There is more: scroll the table sideways →"));
  markCut();
}

function drawReproduce() {
  const place = byId("reproduce");
  const open = new Set([...place.querySelectorAll("details[open]")].map((one) => one.dataset.label));
  place.replaceChildren(...chosen().map(({ label }) => {
    const runs = current().runs.filter((run) => run.series === label);
    const commands = runs.map((run) => run.command).join("\n");
    const copy = make("button", { type: "button", onclick: () => copyText(copy, commands) }, "copy");
    const made = Object.entries(runs[0].environment).filter(([name]) => name !== "seed").map(([name, value]) => `${name} ${value}`).join(", ");
    return make("div", { class: "repeat" }, make("h3", {}, label), make("div", { class: "command" }, make("pre", {}, commands), copy),
      make("details", { "data-label": label, open: open.has(label) ? "" : null }, make("summary", {}, "config and versions"),
        make("div", {}, make("p", { class: "note" }, [runs.map((run) => run.folder).join(", "), made].filter(Boolean).join("; ")),
          make("pre", {}, runs[0].config))));
  }));
}

function copyText(button, text) {
  const done = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => select(button));
  else select(button);
}

function select(button) {
  getSelection().selectAllChildren(button.previousElementSibling);
}

// Theme: as the system says, until it is switched.
const dark = matchMedia("(prefers-color-scheme: dark)");
byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
});
for (const id of ["axis", "metric", "smooth"]) byId(id).addEventListener("change", drawChart);
byId("run").addEventListener("change", () => { state.run = chosenRuns()[byId("run").selectedIndex].folder; drawRun(); });
byId("alpha").addEventListener("change", () => { state.alpha = byId("alpha").selectedOptions[0].textContent; drawAll(); });
byId("dataset").addEventListener("change", () => { state.dataset = byId("dataset").selectedIndex; state.sort = {}; drawAll(); });

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone's address bar comes and goes
  width = innerWidth;
  if (current()) { drawChart(); drawRun(); markCut(); }
});

async function refresh() {
  try {
    const answer = await fetch("data.json", { cache: "no-store" });
    const text = await answer.text();
    if (answer.ok && text !== refresh.last) { refresh.last = text; data = JSON.parse(text); drawAll(); }
    byId("live").textContent = "live";
  } catch { byId("live").textContent = "waiting for fedseq watch"; }
}

drawAll();
if (data.live) setInterval(refresh, 2000);
