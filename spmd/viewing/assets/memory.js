// The memory of a process over its schedule, stacked by the lines of the program that need it.
"use strict";

(() => {
  const { el, svg } = view;
  const [WIDTH, HEIGHT, LEFT, TOP] = [760, 300, 76, 16];
  const MOST_LAYERS = 8;
  const state = { step: -1 };

  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

  // Bytes at each step: arguments and results all along, beside them what lives; and the step of the peak.
  const profile = (data) => {
    const { memory } = data;
    if (memory.profile) return memory.profile;
    const count = Math.max(1, memory.steps.length);
    const base = sum(memory.arguments) + sum(memory.results);
    const live = new Float64Array(count + 1);
    for (const [nbytes, first, last] of memory.live) {
      live[first] += nbytes;
      live[Math.min(count, last + 1)] -= nbytes;
    }
    let now = 0;
    const totals = Array.from({ length: count }, (_, step) => (now += live[step]) + base);
    let peak = 0;
    totals.forEach((total, step) => { if (total > totals[peak]) peak = step; });
    return (memory.profile = { count, base, totals, peak });
  };
  view.memoryProfile = profile;

  // What lives at `step`, by the line of the source, the most bytes first.
  const living = (data, step) => {
    const lines = new Map();
    for (const [nbytes, first, last, op, place, what] of data.memory.live) {
      if (first > step || last < step) continue;
      const name = data.place(place);
      const line = lines.get(name) || { name, nbytes: 0, op, what, count: 0 };
      lines.set(name, { ...line, nbytes: line.nbytes + nbytes, count: line.count + 1 });
    }
    return [...lines.values()].sort((a, b) => b.nbytes - a.nbytes);
  };

  view.memoryAt = living;

  const layers = (data, found) => {
    const { count, totals, peak } = found;
    const names = living(data, peak).slice(0, MOST_LAYERS - 1).map((line) => line.name);
    const sums = [...names, null].map(() => new Float64Array(count));
    for (const [nbytes, first, last, , place] of data.memory.live) {
      const at = names.indexOf(data.place(place));
      const row = sums[at < 0 ? names.length : at];
      for (let step = first; step <= Math.min(last, count - 1); step++) row[step] += nbytes;
    }
    return { names, sums, totals };
  };

  const area = (lower, upper, x, y) => {
    const steps = upper.length;
    let path = `M${x(0)} ${y(upper[0])}`;
    for (let step = 0; step < steps; step++) path += `L${x(step)} ${y(upper[step])}L${x(step + 1)} ${y(upper[step])}`;
    for (let step = steps - 1; step >= 0; step--) path += `L${x(step + 1)} ${y(lower[step])}L${x(step)} ${y(lower[step])}`;
    return `${path}Z`;
  };

  const picture = (data) => {
    const found = profile(data);
    const { count, base, totals, peak } = found;
    const { names, sums } = layers(data, found);
    const most = Math.max(totals[peak], 1);
    const x = (step) => LEFT + (WIDTH * step) / count;
    const y = (nbytes) => TOP + HEIGHT - (HEIGHT * nbytes) / most;
    let lower = new Float64Array(count);
    const drawn = [];
    const add = (upper, fill, name) => {
      drawn.push(svg("path", { d: area(lower, upper, x, y), fill, class: "layer" }, svg("title", {}, name)));
      lower = upper;
    };
    add(new Float64Array(count).fill(base), "var(--quiet)", `arguments and results: ${view.bytes(base)}`);
    sums.forEach((row, at) => add(row.map((nbytes, step) => nbytes + lower[step]), view.categories[at], names[at] || "other lines"));
    const step = state.step >= 0 ? state.step : peak;
    const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => [
      svg("line", { x1: LEFT, x2: LEFT + WIDTH, y1: y(part * most), y2: y(part * most), class: "rule" }),
      svg("text", { x: LEFT - 6, y: y(part * most) + 4, "text-anchor": "end", class: "small" }, view.bytes(part * most)),
    ]);
    const drawing = view.picture(
      "Memory of a process over the steps of its schedule", LEFT + WIDTH + 20, TOP + HEIGHT + 40, marks, drawn,
      svg("line", { x1: x(step + 0.5), x2: x(step + 0.5), y1: TOP, y2: TOP + HEIGHT, class: "cursor" }),
      svg("text", { x: LEFT, y: TOP + HEIGHT + 28, class: "axis" }, `${view.count(data.memory.steps.length, "step")} of the schedule; the peak is at step ${peak + 1}`),
    );
    drawing.querySelector("svg").addEventListener("click", (event) => {
      const point = event.currentTarget.getBoundingClientRect();
      const at = ((event.clientX - point.left) * (LEFT + WIDTH + 20)) / point.width;
      go(Math.floor(((at - LEFT) / WIDTH) * count));
    });
    return drawing;
  };

  const go = (step) => {
    const { data } = view;
    state.step = Math.max(0, Math.min(profile(data).count - 1, step));
    const ops = data.memory.stepOps[state.step] || [];
    if (ops.length) view.select({ op: ops[ops.length - 1] });
    else panel.draw(view.node("memory"));
  };

  const listing = (data) => {
    const { peak, totals, base } = profile(data);
    const step = state.step >= 0 ? state.step : peak;
    const lines = living(data, step);
    const names = living(data, peak).slice(0, MOST_LAYERS - 1).map((line) => line.name);
    // The colour of a line in the picture: those that need most at the peak have one of their own.
    const swatch = (name, isLine) => {
      const at = names.indexOf(name);
      const colour = isLine ? view.categories[at < 0 ? names.length : at] : "var(--quiet)";
      return el("i", { class: "swatch", style: `background:${colour}` });
    };
    const row = (name, nbytes, what, op) =>
      el("tr", op >= 0 ? view.selectable({ class: op === view.selection.op ? "selected" : "" }, { op }) : {}, el("td", { title: name }, swatch(name, !what.endsWith("arrays")), view.shorten(view.near(name), 70)), el("td", { class: "number" }, view.bytes(nbytes)), el("td", { class: "number" }, view.share(nbytes, totals[step])), el("td", {}, what));
    return el(
      "table", { class: "rows" },
      el("caption", {}, `step ${step + 1}${step === peak ? ", the peak" : ""}: ${data.memory.steps.length ? view.shorten(data.text(data.memory.steps[step]), 100) : "nothing runs"}; ${view.bytes(totals[step])} live`),
      el("thead", {}, el("tr", {}, ["line", "bytes", "share", "what"].map((name) => el("th", { scope: "col", class: name === "bytes" || name === "share" ? "number" : "" }, name)))),
      el("tbody", {},
        row("arguments", sum(data.memory.arguments), `${data.memory.arguments.length} arrays`, -1),
        row("results", base - sum(data.memory.arguments), `${data.memory.results.length} arrays`, -1),
        lines.slice(0, 100).map((line) => row(line.name, line.nbytes, `${line.what}${line.count > 1 ? `, ${line.count} of them` : ""}`, line.op))),
    );
  };

  const totalsTable = (data) => {
    const { footprint, arenas } = data.memory;
    const rows = [["arguments", footprint.arguments], ["results", footprint.results], ["temporaries", footprint.temporaries], ["in all", footprint.arguments + footprint.results + footprint.temporaries]];
    if (arenas.length) rows.push(["largest arena", Math.max(...arenas.map(([size]) => size))]);
    return el("table", { class: "facts" }, rows.map(([name, nbytes]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { "data-bytes": nbytes }, view.bytes(nbytes)))));
  };

  const panel = {
    id: "memory",
    title: "Memory",
    draw(node) {
      const { data } = view;
      if (!data.memory) {
        view.clear(node, el("h2", {}, "Memory"), el("p", { class: "note" }, "The program has no schedule before it runs: its memory is not known."));
        return;
      }
      const step = el("label", {}, "step ", el("input", { type: "number", min: 1, max: data.memory.steps.length, value: (state.step >= 0 ? state.step : profile(data).peak) + 1, onchange: (event) => go(Number(event.target.value) - 1) }));
      view.clear(node, el("h2", {}, "Memory of a process"), el("div", { class: "columns" }, el("div", { class: "grow" }, picture(data), step), totalsTable(data)), listing(data));
    },
    selected() {
      const { data, selection } = view;
      if (data.memory && selection.op >= 0) {
        const at = data.memory.stepOps.findIndex((ops) => ops.includes(selection.op));
        if (at >= 0) state.step = at;
      }
      panel.draw(view.node("memory"));
    },
    reset() {
      state.step = -1;
    },
  };
  view.panels.push(panel);
})();
