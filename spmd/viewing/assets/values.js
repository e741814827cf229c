// What each process holds, step by step: of a program that was run.
"use strict";

(() => {
  const { el } = view;
  const MOST_ROWS = 16;
  const state = { step: 0 };

  // An array's elements as a small table of its last two dimensions, the first page of the others; many as a heat map.
  const cells = (entry, name, fill) => {
    if (!entry) return el("span", { class: "note" }, "nothing");
    const [shape, elements] = entry;
    if (typeof elements === "string") return view.heatMap(entry, name);
    if (!elements) return el("span", { class: "note" }, `${shape.join("×") || "scalar"}: too large to be shown`);
    const across = shape.length ? shape[shape.length - 1] : 1;
    const rows = [];
    for (let at = 0; at < elements.length && rows.length < MOST_ROWS; at += Math.max(1, across)) rows.push(elements.slice(at, at + across));
    const attributes = fill ? { style: `background:${fill};color:${view.inkOn(fill)}` } : {};
    return el("table", { class: "elements" }, rows.map((row) => el("tr", {}, row.slice(0, MOST_ROWS).map((element) => el("td", attributes, element)), row.length > MOST_ROWS && el("td", {}, "…"))), elements.length > MOST_ROWS * across && el("tr", {}, el("td", {}, "…")));
  };

  // The colour of the group of each process, where the step is a collective.
  const groupColours = (data, step) => {
    const colours = new Map();
    const number = step.op >= 0 ? data.ops[step.op].collective : -1;
    if (number < 0) return colours;
    const groups = view.groupsOf(data, data.collectives[number]);
    groups.forEach((members, index) => members.forEach((rank) => colours.set(rank, view.colour(index, groups.length))));
    return colours;
  };

  const operandsOf = (data, at) => {
    const { steps } = data.run;
    const step = steps[at];
    if (step.op < 0) return [];
    return data.ops[step.op].inputs.map((id) => {
      const value = data.values[id];
      if (value.argument >= 0) return [value, (rank) => data.run.arguments[rank][value.argument]];
      for (let before = at - 1; before >= 0; before--) {
        if (steps[before].op !== value.op) continue;
        const place = data.ops[value.op].outputs.indexOf(id);
        return [value, (rank) => (steps[before].values[rank] ? steps[before].values[rank][place] : null)];
      }
      return [value, () => null];
    });
  };

  const table = (data) => {
    view.clearHeats();
    const step = data.run.steps[state.step];
    const colours = groupColours(data, step);
    const operands = operandsOf(data, state.step).slice(0, 4);
    const ranks = Array.from({ length: data.grid.size }, (_, rank) => rank);
    const row = (rank) =>
      el(
        "tr",
        view.selectable({ class: rank === view.selection.rank ? "selected" : "", "data-rank": rank }, { rank }),
        el("th", { scope: "row" }, colours.has(rank) && el("i", { class: "swatch", style: `background:${colours.get(rank)}` }), `rank ${rank}`),
        operands.map(([value, held]) => el("td", {}, cells(held(rank), `${value.name} of rank ${rank}`))),
        el("td", { class: "after" }, (step.values[rank] || [null]).map((entry) => cells(entry, `${data.text(step.name)} of rank ${rank}`, colours.get(rank)))),
      );
    return el(
      "div", { class: "scroll", tabindex: 0, "aria-label": "values" },
      el("table", { class: "rows values-table" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "process"), operands.map(([value]) => el("th", { scope: "col" }, `takes ${view.shorten(value.name, 20)}`)), el("th", { scope: "col" }, `${data.text(step.name)} gives`))),
        el("tbody", {}, ranks.map(row))),
    );
  };

  const go = (step) => {
    const { data } = view;
    state.step = Math.max(0, Math.min(data.run.steps.length - 1, step));
    state.own = true;
    const { op } = data.run.steps[state.step];
    if (op >= 0) view.select({ op });
    else panel.draw(view.node("values"));
    state.own = false;
    const next = document.getElementById("values-next");
    if (next) next.focus();
  };

  const panel = {
    id: "values",
    title: "Values",
    present: () => view.documents.some((data) => data.run),
    draw(node) {
      const { data } = view;
      if (!data.run || !data.run.steps.length) {
        view.clear(node, el("h2", {}, "Values"), el("p", { class: "note" }, "The program has no steps that were run."));
        return;
      }
      const step = data.run.steps[state.step];
      const count = data.run.steps.length;
      view.clear(
        node,
        el("h2", {}, "Values"),
        el("div", { class: "bar", onkeydown: keys },
          el("button", { "aria-label": "step back", disabled: state.step === 0, onclick: () => go(state.step - 1) }, "◂ back"),
          el("button", { id: "values-next", "aria-label": "step forward", disabled: state.step === count - 1, onclick: () => go(state.step + 1) }, "forward ▸"),
          el("label", {}, "step ", el("input", { type: "range", min: 0, max: count - 1, value: state.step, "aria-label": "step", oninput: (event) => go(Number(event.target.value)) })),
          el("b", {}, `${state.step + 1} of ${count}: ${data.text(step.name)}`), el("span", { class: "place" }, view.near(data.place(step.place)))),
        el("p", { class: "note" }, `Run on arguments made by seed ${data.run.seed}.${data.run.left ? ` ${data.run.left} later steps are not shown.` : ""}`),
        table(data),
      );
    },
    selected() {
      const { data, selection } = view;
      if (data.run && !state.own && selection.op >= 0) {
        const at = data.run.steps.findIndex((step) => step.op === selection.op);
        if (at >= 0) state.step = at;
      }
      panel.draw(view.node("values"));
    },
    reset() {
      state.step = 0;
    },
  };
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.target.type === "range") return;
    event.preventDefault();
    event.stopPropagation();
    go(state.step + step);
  };
  view.panels.push(panel);
})();
