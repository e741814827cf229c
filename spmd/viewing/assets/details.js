// What is selected: an op with its types, shardings, where those come from, its rule, time and source lines.
"use strict";

view.details = (() => {
  const { el } = view;

  // Step by step, from which value and by which op each dimension got its axes.
  const chain = (data, number) => {
    const steps = [];
    const seen = new Set();
    const follow = (at, dimension, depth) => {
      if (depth > 40 || seen.has(`${at},${dimension}`)) return;
      seen.add(`${at},${dimension}`);
      const value = data.globals[at];
      const growths = value.grown.filter((each) => dimension < 0 || each[0] === dimension);
      if (value.asked) steps.push(`${value.name} is laid out so by the program`);
      for (const [own, axes, op, place, source, other] of growths) {
        const from = source >= 0 ? data.globals[source].name : "the boundary of manual code";
        steps.push(`dimension ${own} of ${value.name} is cut along ${data.text(axes)} by ${data.text(op)}${place >= 0 ? ` at ${view.near(data.place(place))}` : ""}, as dimension ${other} of ${from} is`);
        if (source >= 0 && steps.length < 60) follow(source, other, depth + 1);
      }
    };
    follow(number, -1, 0);
    return steps;
  };
  view.provenance = chain;

  const source = (data, place) => {
    const frames = place >= 0 ? data.places[place][1] : [];
    return frames.slice(0, 6).map(([file, line]) => {
      const name = data.text(file);
      const lines = data.sources[name];
      const near = [];
      for (let at = line - 2; at <= line + 2; at++) if (lines && lines[at] !== undefined) near.push(el("div", { class: at === line ? "here" : "" }, el("span", { class: "number" }, at), lines[at]));
      return near.length ? el("details", { open: true }, el("summary", {}, `${view.shorten(view.near(name), 60)}:${line}`), el("pre", {}, near)) : el("p", { class: "place" }, `${view.shorten(view.near(name), 60)}:${line}`);
    });
  };

  const valueRow = (data, id) => {
    const value = data.values[id];
    const what = value.argument >= 0 ? `argument ${value.argument}` : value.op >= 0 ? data.ops[value.op].name : "of a block";
    return el("li", {}, el("button", { onclick: () => view.select({ value: id }) }, el("b", {}, view.shorten(value.name, 60)), ` ${view.shorten(value.type, 60)}`), el("small", {}, ` ${what}`));
  };

  const ofValue = (data, value) => {
    const whole = value.whole >= 0 ? data.globals[value.whole] : null;
    const rows = [["type of a block", value.type]];
    if (whole) rows.push(["whole", `${whole.name} ${whole.type}`]);
    if (value.sharding >= 0) rows.push(["sharding", data.shardings[value.sharding].text]);
    if (whole && whole.sharding >= 0 && whole.sharding !== value.sharding) rows.push(["propagated", data.shardings[whole.sharding].text]);
    const steps = whole ? chain(data, value.whole) : [];
    return [
      el("table", { class: "facts" }, rows.map(([name, text]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, view.shorten(text, 300))))),
      whole && el("h4", {}, "Where the sharding comes from"),
      whole && (steps.length ? el("ol", { class: "steps" }, steps.map((step) => el("li", {}, view.shorten(step, 400)))) : el("p", {}, "Nothing cuts it: it is whole on every process.")),
    ];
  };

  const why = (data, op) => {
    if (op.reshard < 0) return [];
    const { value, from, to, user, place } = data.reshards[op.reshard];
    const taker = user >= 0 ? `${data.text(user)} at ${view.near(data.place(place))}` : "the result";
    return [el("h4", {}, "Why it is there"), el("p", { class: "why" }, `${data.globals[value].name} is ${data.shardings[from].text}; ${taker} takes it as ${data.shardings[to].text}.`)];
  };
  view.why = (data, op) => {
    const told = why(data, op);
    return told.length ? told[1].textContent : "";
  };

  const ofCollective = (data, number) => {
    const each = data.collectives[number];
    const rows = [
      ["groups", each.groups >= 0 ? `${data.groups[each.groups].count} of up to ${view.count(each.size, "process", "processes")}` : "pairs of processes"],
      ["sends", `up to ${view.bytes(each.sent)} a process`],
      ["receives", `up to ${view.bytes(each.received)} a process`],
    ];
    for (const message of each.messages) rows.push(["message", data.text(message.text)], ["carried by", data.text(message.algorithm)]);
    if (each.seconds !== null) rows.push(["expected", `${view.seconds(each.seconds)}${each.turns > 1 ? `, ${each.turns.toLocaleString("en")} times` : ""}`]);
    return el("table", { class: "facts" }, rows.map(([name, text]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text))));
  };

  const ofOp = (data, op) => {
    const users = data.ops.filter((other) => op.outputs.some((id) => other.inputs.includes(id)));
    return [
      el("h3", {}, op.name),
      el("p", { class: "place" }, view.shorten(data.place(op.place), 120)),
      op.seconds > 0 && el("p", {}, `${view.timeOf(data, [op.id])} expected${op.units.some((id) => data.units[id].ops.length > 1) ? ", its part of what is computed together, by its cost" : ""}: ${view.shorten(op.units.map((id) => data.units[id].title).join("; "), 200)}`),
      op.collective >= 0 && ofCollective(data, op.collective),
      why(data, op),
      op.outputs.slice(0, 8).map((id) => ofValue(data, data.values[id])),
      op.rule >= 0 && [el("h4", {}, "Factor rule"), el("code", {}, data.text(op.rule))],
      el("h4", {}, "Source"),
      source(data, op.place),
      op.inputs.length > 0 && [el("h4", {}, "Takes"), el("ul", { class: "values" }, op.inputs.slice(0, 40).map((id) => valueRow(data, id)))],
      users.length > 0 && [el("h4", {}, "Taken by"), el("ul", { class: "values" }, users.slice(0, 40).map((other) => el("li", {}, el("button", { onclick: () => view.select({ op: other.id }) }, other.name), el("small", {}, ` ${view.shorten(view.near(data.place(other.place)), 60)}`))))],
    ];
  };

  const ofRank = (data, rank) => el("p", { class: "rank" }, view.process(data, rank).join(" · "));

  return {
    draw() {
      const { data, selection } = view;
      const node = document.getElementById("details");
      const op = selection.op >= 0 ? data.ops[selection.op] : null;
      const value = !op && selection.value >= 0 ? data.values[selection.value] : null;
      view.clear(
        node,
        selection.rank >= 0 && ofRank(data, selection.rank),
        op && ofOp(data, op),
        value && [el("h3", {}, `${value.name}${value.argument >= 0 ? `, argument ${value.argument}` : ""}`), ofValue(data, value)],
        !op && !value && selection.collective >= 0 && [el("h3", {}, data.collectives[selection.collective].kind), ofCollective(data, selection.collective), source(data, data.collectives[selection.collective].place)],
        !op && !value && selection.collective < 0 && selection.rank < 0 && el("p", { class: "note" }, "Select a process, an array, an operation or a collective: it is then selected in every panel."),
      );
      node.dataset.op = selection.op;
    },
  };
})();
