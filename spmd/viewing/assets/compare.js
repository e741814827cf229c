// Two programs side by side: what is different in layouts, communication, memory and time.
"use strict";

(() => {
  const { el } = view;

  const totals = (data) => {
    const footprint = data.memory ? data.memory.footprint : null;
    const sum = (field) => data.collectives.reduce((total, each) => total + each.turns * each[field], 0);
    return [
      ["processes", data.grid.size, String],
      ["ops", data.ops.filter((op) => !op.ends).length, String],
      ["collectives", data.collectives.length, String],
      ["bytes that a process sends", sum("sent"), view.bytes],
      ["bytes that a process receives", sum("received"), view.bytes],
      ["memory of a process", footprint ? footprint.arguments + footprint.results + footprint.temporaries : null, view.bytes],
      ["temporaries", footprint ? footprint.temporaries : null, view.bytes],
      ["a step", data.prediction ? data.prediction.seconds : null, view.seconds],
      ["computing", data.prediction ? data.prediction.computing : null, view.seconds],
      ["communicating", data.prediction ? data.prediction.communicating : null, view.seconds],
      ["waiting for others", data.prediction ? data.prediction.waiting : null, view.seconds],
    ];
  };

  const kinds = (data) => {
    const found = new Map();
    for (const each of data.collectives) {
      const entry = found.get(each.kind) || [0, 0];
      found.set(each.kind, [entry[0] + 1, entry[1] + each.turns * Math.max(each.sent, each.received)]);
    }
    return found;
  };

  const change = (a, b) => {
    if (a === null || b === null) return "";
    if (a === b) return "the same";
    if (!a || !b) return "";
    const ratio = b / a;
    return ratio > 1 ? `${ratio.toPrecision(3)} times as much` : `${(100 * (1 - ratio)).toFixed(1)} % less`;
  };

  const rows = (head, found) =>
    el("table", { class: "rows" }, el("thead", {}, el("tr", {}, head.map((name, at) => el("th", { scope: "col", class: at === 1 || at === 2 ? "number" : "" }, name)))), el("tbody", {}, found));

  const numbers = (a, b) => {
    const [first, second] = [totals(a), totals(b)];
    return rows(["", "A", "B", "change"], first.map(([name, value, told], at) => {
      const other = second[at][1];
      const text = (number) => (number === null ? "unknown" : told(number));
      return el("tr", { class: value === other ? "" : "differs" }, el("th", { scope: "row" }, name), el("td", { class: "number", "data-value": value }, text(value)), el("td", { class: "number", "data-value": other }, text(other)), el("td", {}, change(value, other)));
    }));
  };

  const collectives = (a, b) => {
    const [first, second] = [kinds(a), kinds(b)];
    const names = [...new Set([...first.keys(), ...second.keys()])];
    const text = (entry) => (entry ? `${entry[0]}, ${view.bytes(entry[1])}` : "none");
    return rows(["collective", "A", "B"], names.map((name) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, text(first.get(name))), el("td", { class: "number" }, text(second.get(name))))));
  };

  const layouts = (a, b) => {
    const told = (data, [, sharding, local]) => `${sharding >= 0 ? `${data.shardings[sharding].text} as ` : ""}${data.texts[local]}`;
    const found = [];
    for (const [side, name] of [["in", "argument"], ["out", "result"]]) {
      for (let at = 0; at < Math.max(a[side].length, b[side].length); at++) {
        const [one, two] = [a, b].map((data) => (data[side][at] ? told(data, data[side][at]) : "none"));
        if (one !== two) found.push(el("tr", {}, el("th", { scope: "row" }, `${name} ${at}`), el("td", {}, one), el("td", {}, two)));
      }
    }
    return found.length ? el("table", { class: "rows" }, el("thead", {}, el("tr", {}, ["", "A", "B"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, found)) : el("p", { class: "note" }, "All arguments and results are laid out alike.");
  };

  view.panels.push({
    id: "compare",
    title: "A and B",
    present: () => view.documents.length > 1,
    draw(node) {
      const [a, b] = view.documents;
      [0, 1].forEach(view.prepare);
      view.clear(node, el("h2", {}, `A: ${view.shorten(a.title, 60)}, B: ${view.shorten(b.title, 60)}`), numbers(a, b), el("h3", {}, "Collectives"), collectives(a, b), el("h3", {}, "Layouts that differ"), layouts(a, b));
    },
  });
})();
