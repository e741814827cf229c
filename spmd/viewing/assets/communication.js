// What processes send each other: a table of collectives, and a heat map of bytes from rank to rank.
"use strict";

(() => {
  const { el, svg } = view;
  const MOST_CELLS = 64;
  const COLUMNS = [
    ["number", "#", (each) => each.number],
    ["kind", "collective", (each) => each.kind],
    ["groups", "groups", (each) => each.size],
    ["sent", "sends", (each) => each.sends],
    ["received", "receives", (each) => each.receives],
    ["takes", "time", (each) => each.takes],
    ["place", "place", (each) => view.data.place(each.place)],
  ];
  const state = { sort: "number", down: false, filter: "", all: true };

  view.groupsOf = (data, collective) => {
    if (collective.groups >= 0) return data.groups[collective.groups].rows;
    const pairs = collective.messages.flatMap((message) => message.pairs || []);
    return pairs.length ? pairs : [Array.from({ length: data.grid.size }, (_, rank) => rank)];
  };

  // The groups of a collective as `[0,1],[2,3]`, the first of them where there are many; pairs as `0→1, 1→2`.
  view.groupText = (data, each, most = 36) => {
    const pairs = each.messages.flatMap((message) => message.pairs || []);
    if (!each.messages.length) return "";
    if (each.groups < 0 && !pairs.length) return `[${view.ranks(view.groupsOf(data, each)[0])}]`;
    const told = each.groups < 0
      ? pairs.slice(0, 12).map((pair) => pair.join("→"))
      : data.groups[each.groups].rows.slice(0, 12).map((members) => `[${members.length > 4 ? view.ranks(members, 2) : members.join(",")}]`);
    const count = each.groups < 0 ? pairs.length : data.groups[each.groups].count;
    let shown = 1;
    while (shown < told.length && told.slice(0, shown + 1).join().length <= most) shown++;
    return told.slice(0, shown).join(",") + (shown < count ? `, … ${view.count(count, each.groups < 0 ? "pair" : "group")}` : "");
  };

  // Bytes from rank to rank of one collective in all its turns, each pair given to `add`.
  const messages = (data, each, add) => {
    for (const message of each.messages) {
      if (message.pairs) {
        for (const [source, target] of message.pairs) if (source !== target) add(source, target, each.turns * message.bytes);
        continue;
      }
      for (const members of view.groupsOf(data, each)) {
        const size = members.length;
        for (const [times, distance, nbytes, stride] of message.rounds || []) {
          const far = Math.abs(distance);
          members.forEach((source, at) => {
            if (stride) {
              if (at % stride || at + far >= size) return;
              const [from, to] = distance > 0 ? [source, members[at + far]] : [members[at + far], source];
              add(from, to, each.turns * times * nbytes);
            } else if (distance) add(source, members[(at + distance) % size], each.turns * times * nbytes);
            else for (let other = 1; other < size; other++) add(source, members[(at + other) % size], each.turns * nbytes);
          });
        }
      }
    }
  };
  // [cells, ranks a cell, bytes of the heaviest cell, bytes in all]; one cell stands for several ranks where there are many.
  const matrix = (data, collectives) => {
    const step = Math.ceil(data.grid.size / MOST_CELLS);
    const side = Math.ceil(data.grid.size / step);
    const cells = new Float64Array(side * side);
    let total = 0;
    for (const each of collectives)
      messages(data, each, (source, target, nbytes) => {
        total += nbytes;
        cells[Math.floor(source / step) * side + Math.floor(target / step)] += nbytes;
      });
    return { cells, side, step, most: cells.reduce((most, cell) => Math.max(most, cell), 0), total };
  };
  view.traffic = matrix;

  const whole = (data) => (data.traffic ||= matrix(data, data.collectives));

  const levels = (data, collectives) => {
    if (!data.grid.levels.length) return [];
    const sums = data.grid.levels.map(() => 0);
    for (const each of collectives)
      messages(data, each, (source, target, nbytes) => {
        const at = data.grid.levels.findIndex(([, processes]) => !processes || Math.floor(source / processes) === Math.floor(target / processes));
        sums[at < 0 ? sums.length - 1 : at] += nbytes;
      });
    return data.grid.levels.map(([name], at) => [name, sums[at]]);
  };

  const heat = (data) => {
    const { collective } = view.selection;
    const one = collective >= 0 && !state.all;
    const found = one ? matrix(data, [data.collectives[collective]]) : whole(data);
    const { cells, side, step, most, total } = found;
    const size = Math.max(6, Math.min(40, Math.floor(440 / side)));
    const [left, top] = [52, 44];
    const drawn = [];
    const name = (at) => (step > 1 ? `ranks ${at * step}-${Math.min(data.grid.size, (at + 1) * step) - 1}` : `rank ${at}`);
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        const nbytes = cells[row * side + column];
        const text = `from ${name(row)} to ${name(column)}: ${view.bytes(nbytes)}`;
        drawn.push(svg("rect", { class: nbytes ? "heat" : "heat none", x: left + column * size, y: top + row * size, width: size - 1, height: size - 1, ...(nbytes ? { fill: view.ramp(0.12 + (0.88 * nbytes) / most) } : {}), "data-bytes": nbytes, onclick: () => view.select({ rank: row * step }) }, svg("title", {}, text)));
      }
    }
    const every = Math.max(1, Math.ceil((7 * String(data.grid.size).length + 8) / size));
    const marks = Array.from({ length: side }, (_, at) => at).filter((at) => at % every === 0).flatMap((at) => [
      svg("text", { x: left + at * size + size / 2, y: top - 6, "text-anchor": "middle", class: "small" }, at * step),
      svg("text", { x: left - 6, y: top + at * size + size / 2 + 4, "text-anchor": "end", class: "small" }, at * step),
    ]);
    const cut = data.groups.some((groups) => groups.rows.length < groups.count);
    return el(
      "div",
      {},
      view.picture(`Bytes from rank to rank${one ? ` of ${data.collectives[collective].kind} ${collective}` : ""}`, left + side * size + 20, top + side * size + 16, svg("text", { x: left, y: 16, class: "axis" }, "to rank"), svg("text", { transform: `translate(14 ${top}) rotate(90)`, class: "axis" }, "from rank"), marks, drawn),
      most > 0 && el("p", { class: "legend" }, "bytes ", view.scale("few", view.bytes(most), true)),
      el("p", { class: "note" }, `${view.bytes(total)} from all processes together, ${view.bytes(most)} in the heaviest cell, by the algorithm that sends the least.`, step > 1 ? ` A cell stands for ${step} ranks.` : "", cut ? " Of large groupings the first groups alone are counted." : ""),
      collective >= 0 && el("label", {}, el("input", { type: "checkbox", checked: !state.all, onchange: (event) => { state.all = !event.target.checked; panel.draw(view.node("communication")); } }), " the selected collective alone"),
      levelTable(data, one ? [data.collectives[collective]] : data.collectives),
    );
  };

  const levelTable = (data, collectives) => {
    const predicted = data.prediction && collectives === data.collectives;
    const found = predicted ? Object.entries(data.prediction.levels) : levels(data, collectives);
    return found.length > 0 && el("table", { class: "facts" }, el("caption", {}, "bytes over each level of the network"), found.map(([name, nbytes]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, view.bytes(nbytes)))));
  };

  const shown = (data) => {
    const wanted = state.filter.toLowerCase();
    const field = COLUMNS.find(([id]) => id === state.sort)[2];
    const found = data.collectives.filter((each) => !wanted || `${each.kind} ${data.place(each.place)} ${each.messages.map((message) => data.text(message.text)).join(" ")}`.toLowerCase().includes(wanted));
    const sign = state.down ? -1 : 1;
    return found.sort((a, b) => sign * (field(a) < field(b) ? -1 : field(a) > field(b) ? 1 : a.number - b.number));
  };

  const MOST_ROWS = 300;
  const rows = (data) =>
    shown(data).slice(0, MOST_ROWS).map((each) =>
      el(
        "tr",
        view.selectable({ class: each.number === view.selection.collective ? "selected" : "", "data-collective": each.number }, { collective: each.number }),
        el("td", { class: "number" }, each.number),
        el("td", {}, each.kind, each.turns > 1 ? ` (${each.turns} turns)` : each.repeated ? " (in a loop)" : ""),
        el("td", {}, view.groupText(data, each, 26)),
        el("td", { class: "number" }, each.messages.length ? view.bytes(each.sends) : ""),
        el("td", { class: "number" }, each.messages.length ? view.bytes(each.receives) : ""),
        el("td", { class: "number" }, each.seconds !== null ? view.seconds(each.takes) : ""),
        el("td", { title: data.place(each.place) }, view.shorten(view.near(data.place(each.place)), 60)),
        el("td", { class: "why" }, each.op >= 0 ? view.shorten(view.why(data, data.ops[each.op]), 160) : ""),
      ),
    );

  const table = (data) => {
    const head = COLUMNS.map(([id, name]) =>
      el("th", { scope: "col", class: ["number", "sent", "received", "takes"].includes(id) ? "number" : "", "aria-sort": state.sort === id ? (state.down ? "descending" : "ascending") : "none" }, el("button", { onclick: () => { state.down = state.sort === id ? !state.down : id !== "number" && id !== "kind" && id !== "place"; state.sort = id; panel.draw(view.node("communication")); } }, name, state.sort === id ? (state.down ? " ▾" : " ▴") : "")),
    );
    const body = el("tbody", {}, rows(data));
    return el(
      "div",
      { class: "broad" },
      el("input", { type: "search", placeholder: "filter by kind, place or type", "aria-label": "filter collectives", value: state.filter, oninput: (event) => { state.filter = event.target.value; view.clear(body, rows(data)); } }),
      el("div", { class: "scroll", tabindex: 0, "aria-label": "collectives" }, el("table", { class: "rows" }, el("thead", {}, el("tr", {}, head, el("th", { scope: "col" }, "why"))), body)),
      data.collectives.length > MOST_ROWS && el("p", { class: "note" }, `The first ${MOST_ROWS} of ${data.collectives.length} are listed: filter or sort for others.`),
    );
  };

  const totals = (data) => {
    const kinds = new Map();
    for (const each of data.collectives) {
      const total = kinds.get(each.kind) || { count: 0, sent: 0, takes: 0 };
      kinds.set(each.kind, { count: total.count + 1, sent: total.sent + Math.max(each.sends, each.receives), takes: total.takes + each.takes });
    }
    return el("p", { class: "note" }, [...kinds].map(([kind, { count, sent, takes }]) => `${count} × ${kind}: ${view.bytes(sent)} a process${takes ? `, ${view.seconds(takes)}` : ""}`).join(" · "));
  };

  const panel = {
    id: "communication",
    title: "Communication",
    draw(node) {
      const { data } = view;
      if (!data.collectives.length) {
        view.clear(node, el("h2", {}, "Communication"), el("p", { class: "note" }, "No collectives: the processes do not talk to each other."));
        return;
      }
      view.clear(node, el("h2", {}, "Communication"), totals(data), el("div", { class: "columns" }, table(data), heat(data)));
    },
    selected() {
      panel.draw(view.node("communication"));
      const row = view.node("communication").querySelector("tr.selected");
      if (row) row.scrollIntoView({ block: "nearest" });
    },
  };
  view.panels.push(panel);
})();
