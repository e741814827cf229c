// One screen on what matters: time, the ops that cost most, communication and why, memory, processes; each a way to its panel.
"use strict";

(() => {
  const { el, svg } = view;
  const MOST = 5;

  // Rows that belong together by `key`, the largest sums first: [row with the most, sum, rows].
  const grouped = (rows, key, amount) => {
    const groups = new Map();
    for (const row of rows) {
      const name = key(row);
      const group = groups.get(name) || { first: row, total: 0, rows: [] };
      if (amount(row) > amount(group.first)) group.first = row;
      group.total += amount(row);
      group.rows.push(row);
      groups.set(name, group);
    }
    return [...groups.values()].sort((a, b) => b.total - a.total);
  };

  // The line of the source that a place stands for, where it is on the page.
  const lineOf = (data, place) => {
    const frames = place >= 0 ? data.places[place][1] : [];
    const found = frames.map(([file, line]) => (data.sources[data.text(file)] || {})[line]).find((line) => line);
    return found ? el("code", {}, ` ${view.shorten(found.trim(), 44)}`) : null;
  };
  const go = (panel, change) => () => {
    view.select(change);
    view.show(panel);
  };
  const opens = (panel, change, attributes) => ({
    ...attributes,
    tabindex: 0,
    onclick: go(panel, change),
    onkeydown: (event) => { if (event.key === "Enter") go(panel, change)(); },
  });
  const card = (panel, title, className, ...children) =>
    el("section", { class: `card ${className}`, "data-panel": panel }, el("h2", {}, el("button", { onclick: () => view.show(panel) }, title, " ›")), children);
  const table = (heads, rows) =>
    el("table", { class: "rows" }, el("thead", {}, el("tr", {}, heads.map((name) => el("th", { scope: "col", class: name.startsWith("#") ? "number" : "" }, name.replace("#", ""))))), el("tbody", {}, rows));
  const meter = (part) => el("span", { class: "meter" }, el("i", { style: `width:${Math.min(100, 100 * part).toFixed(1)}%` }));

  const time = (data) => {
    const { prediction } = data;
    if (!prediction) return card("time", "Time", "", el("p", { class: "note" }, data.measured ? "There is no prediction, but a measured step." : "There is no prediction of this program."));
    const parts = [["computing", prediction.computing], ["communicating", prediction.communicating], ["waiting for others", prediction.waiting]];
    const told = parts.filter(([, seconds]) => seconds > 0).map(([name, seconds]) => `${name} ${view.seconds(seconds)} (${view.share(seconds, prediction.seconds)})`);
    return card("time", `Time: ${view.seconds(prediction.seconds)} a step predicted on ${data.grid.machine}`, "", view.smallTimeline(data), el("p", { class: "note" }, told.join(" · ")), view.timeLegend(data));
  };

  const ops = (data) => {
    const named = (op) => `${op.name} ${data.place(op.place)}`;
    const costly = grouped(data.ops.filter((op) => op.seconds > 0), named, (op) => op.seconds);
    const total = costly.reduce((sum, group) => sum + group.total, 0);
    const row = ({ first, total: seconds, rows }) =>
      el("tr", opens("program", { op: first.id }), el("td", {}, el("b", {}, first.name), rows.length > 1 && ` × ${rows.length}`), el("td", { title: data.place(first.place) }, view.shorten(view.near(data.place(first.place)), 40), lineOf(data, first.place)), el("td", { class: "number" }, view.timeOf(data, rows.map((op) => op.id))), el("td", { class: "share" }, meter(seconds / total), ` ${view.share(seconds, total)}`));
    return card("program", `Ops that cost most, of ${view.countOps(data, data.ops.map((op) => op.id))}`, "", costly.length ? table(["op", "line", "#time", "of all ops"], costly.slice(0, MOST).map(row)) : el("p", { class: "note" }, "The times of the ops are not known."));
  };

  const collectives = (data) => {
    if (!data.collectives.length) return card("communication", "Communication", "wide", el("p", { class: "note" }, data.grid.size > 1 ? "No collectives: the processes do not communicate." : "One process communicates with no other."));
    const bytes = (each) => Math.max(each.sends, each.receives);
    const why = (each) => (each.op >= 0 ? view.why(data, data.ops[each.op]) : "");
    const heavy = grouped(data.collectives, (each) => `${each.kind} ${each.groups} ${each.place} ${why(each)}`, bytes);
    const row = ({ first, total, rows }) =>
      el("tr", opens("communication", { collective: first.number }), el("td", {}, el("b", {}, first.kind), rows.length > 1 && ` × ${rows.length}`), el("td", {}, view.groupText(data, first)), el("td", { class: "number" }, view.bytes(total)), el("td", { class: "number" }, view.seconds(rows.reduce((sum, each) => sum + each.takes, 0))), el("td", { class: "why" }, view.shorten(why(first) || `written in the program at ${view.near(data.place(first.place))}`, 180)));
    return card("communication", `Communication: ${view.count(data.collectives.length, "collective")}`, "wide", table(["collective", "groups", "#bytes per process", "#time", "why"], heavy.slice(0, MOST).map(row)), heavy.length > MOST && el("p", { class: "note" }, `and ${view.count(heavy.length - MOST, "other")} with fewer bytes`));
  };

  const memory = (data) => {
    if (!data.memory) return card("memory", "Memory", "", el("p", { class: "note" }, "The program has no schedule before it runs: its memory is not known."));
    const { peak, totals, base } = view.memoryProfile(data);
    const inputs = data.memory.arguments.reduce((sum, nbytes) => sum + nbytes, 0);
    const lines = view.memoryAt(data, peak);
    const rows = [["arguments", inputs, -1], ["results", base - inputs, -1], ...lines.slice(0, MOST - 2).map((line) => [view.near(line.name), line.nbytes, line.op])];
    const rest = lines.slice(MOST - 2).reduce((sum, line) => sum + line.nbytes, 0);
    if (rest) rows.push([`${view.count(lines.length - MOST + 2, "other line")}`, rest, -1]);
    const row = ([name, nbytes, op]) =>
      el("tr", op >= 0 ? opens("memory", { op }) : {}, el("td", { title: name }, view.shorten(name, 44)), el("td", { class: "number" }, view.bytes(nbytes)), el("td", { class: "share" }, meter(nbytes / totals[peak]), ` ${view.share(nbytes, totals[peak])}`));
    return card("memory", `Memory at the peak: ${view.bytes(totals[peak])} per process`, "", table(["what", "#bytes", "of all"], rows.map(row)));
  };

  const processes = (data) => {
    const { columns, axes } = view.gridShape(data);
    const rows = Math.min(Math.ceil(data.grid.size / columns), 64);
    const count = Math.min(data.grid.size, rows * columns);
    const cell = Math.max(3, Math.min(18, Math.floor(240 / columns), Math.floor(90 / rows)));
    const cells = Array.from({ length: count }, (_, at) => svg("rect", { x: (at % columns) * cell, y: Math.floor(at / columns) * cell, width: cell - 1, height: cell - 1, rx: 1 }));
    return card("grid", view.count(data.grid.size, "process", "processes"), "",
      el("div", { class: "mesh" }, el("div", { class: "cells" }, view.drawing("processes in small", columns * cell, rows * cell, cells)), el("div", {},
        el("p", {}, axes.map(([name, size]) => `${name} = ${size}`).join(" × ")),
        data.grid.levels.map(([name, size]) => el("p", { class: "note" }, `${name}: ${size ? view.count(size, "process", "processes") : "all processes"}`)),
        count < data.grid.size && el("p", { class: "note" }, `the first ${count.toLocaleString("en")} are drawn`))));
  };

  const panel = {
    id: "overview",
    title: "Overview",
    draw(node) {
      const { data } = view;
      view.clear(node, el("div", { class: "overview" }, time(data), processes(data), ops(data), memory(data), collectives(data)));
    },
  };
  view.panels.push(panel);
})();
