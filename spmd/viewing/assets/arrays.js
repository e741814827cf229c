// Arrays as blocks by their owner: any rank, dimensions beyond two as pages that are turned.
"use strict";

(() => {
  const { el, svg } = view;
  const MOST_BLOCKS = 64;
  const state = { page: [], first: 0, filter: "" };

  // What is drawn of a value: the whole's shape and sharding where it is a block of one.
  const drawn = (data, value) => {
    const whole = value.whole >= 0 ? data.globals[value.whole] : null;
    return whole && value.sharding >= 0
      ? { shape: whole.shape, type: whole.type, name: whole.name, sharding: value.sharding, item: whole.item }
      : { shape: value.shape, type: value.type, name: value.name, sharding: value.sharding, item: value.item };
  };

  const choices = (data) => [
    ...data.values.filter((value) => value.argument >= 0).map((value) => [value.id, `argument ${value.argument}`]),
    ...data.results.map((id, number) => [id, `result ${number}`]),
  ];

  const chosen = (data) => {
    const { value } = view.selection;
    if (value >= 0 && data.values[value]) return data.values[value];
    const cut = choices(data).find(([id]) => data.values[id].sharding >= 0 && view.sharding.counts(data, data.values[id].sharding).some((count) => count > 1));
    const [first] = cut || choices(data)[0] || [data.values.length ? 0 : -1];
    return first >= 0 ? data.values[first] : null;
  };

  const blockText = (owners, part, what, item) => {
    const padded = part.some(([start, stop], at) => stop - start < what.local[at]);
    const elements = part.reduce((product, [start, stop]) => product * (stop - start), 1);
    const index = part.map(([start, stop]) => `${start}:${stop}`).join(", ");
    return `[${index}] on ${owners.length > 1 ? "processes" : "process"} ${view.ranks(owners)}; ${view.bytes(elements * item)}${padded ? ", the rest of the block is padding" : ""}`;
  };

  // One page: the blocks of the last two dimensions; `fixed` are the block numbers of the others.
  const blocks = (data, what, fixed) => {
    const counts = what.sharding >= 0 ? view.sharding.counts(data, what.sharding) : what.shape.map(() => 1);
    const owners = what.sharding >= 0 ? view.sharding.owners(data, what.sharding) : null;
    const local = what.shape.map((size, at) => Math.ceil(size / counts[at]));
    const rank = what.shape.length;
    const [down, across] = [rank > 1 ? rank - 2 : -1, rank - 1];
    const rows = down >= 0 ? counts[down] : 1;
    const columns = across >= 0 ? counts[across] : 1;
    const total = owners ? owners.size : 1;
    const found = [];
    for (let row = 0; row < Math.min(rows, MOST_BLOCKS); row++) {
      for (let column = 0; column < Math.min(columns, MOST_BLOCKS); column++) {
        const at = [...fixed];
        if (down >= 0) at[down] = row;
        if (across >= 0) at[across] = column;
        const part = what.shape.map((size, d) => [Math.min(at[d] * local[d], size), Math.min((at[d] + 1) * local[d], size)]);
        const key = at.join();
        const holders = owners ? owners.get(key) || [] : Array.from({ length: data.grid.size }, (_, each) => each);
        const index = owners ? [...owners.keys()].indexOf(key) : 0;
        found.push({ row, column, part, holders, index });
      }
    }
    return { found, rows, columns, total, local, down, across };
  };

  const picture = (data, value, what) => {
    const rank = what.shape.length;
    const fixed = what.shape.map((_, at) => (at < rank - 2 ? state.page[at] || 0 : 0));
    const page = blocks(data, what, fixed);
    const width = rank ? Math.min(760, Math.max(440, page.columns * 90)) : 90;
    const extent = (at) => (at >= 0 ? page.local[at] * (at === page.down ? page.rows : page.columns) : 1);
    const ratio = Math.min(2, Math.max(0.15, extent(page.down) / Math.max(1, extent(page.across))));
    const height = rank ? Math.max(page.rows * 26, Math.min(560, width * ratio), 40) : 40;
    const [left, top] = [8, 34];
    const cell = [width / Math.min(page.columns, MOST_BLOCKS), height / Math.min(page.rows, MOST_BLOCKS)];
    const selected = view.selection.rank;
    const cells = page.found.map(({ row, column, part, holders, index }) => {
      const fill = view.colour(index, page.total);
      const [x, y] = [left + column * cell[0], top + row * cell[1]];
      const used = (at, size) => (at >= 0 ? (size * (part[at][1] - part[at][0])) / Math.max(1, page.local[at]) : size);
      const [w, h] = [used(page.across, cell[0]), used(page.down, cell[1])];
      const told = blockText(holders, part, page, what.item);
      const label = view.shorten(view.ranks(holders, 3), Math.max(2, Math.floor(cell[0] / 7)));
      return svg(
        "g",
        view.selectable({ class: `block${holders.includes(selected) ? " selected" : ""}`, "data-owners": holders.slice(0, 4096).join(), "data-part": JSON.stringify(part), "aria-label": told }, { rank: holders.length ? holders[0] : -1 }),
        svg("rect", { x, y, width: cell[0], height: cell[1], class: "padding" }),
        svg("rect", { x: x + 0.5, y: y + 0.5, width: Math.max(0, w - 1), height: Math.max(0, h - 1), fill }),
        cell[1] >= 14 && w > 12 && svg("text", { x: x + w / 2, y: y + h / 2 + 4, "text-anchor": "middle", fill: view.inkOn(fill) }, label),
        svg("title", {}, told),
      );
    });
    return view.picture(
      `${what.name} as blocks by owner`,
      left + width + 20,
      top + height + 20,
      svg("text", { x: left, y: 20, class: "axis" }, [[page.down, "down", page.rows], [page.across, "across", page.columns]].filter(([at]) => at >= 0).map(([at, way, count]) => `dimension ${at} (${way}): ${what.shape[at]} in ${view.count(count, "block")}`).join("   ·   ") || "a scalar"),
      cells,
    );
  };

  const pager = (data, what) => {
    const counts = what.sharding >= 0 ? view.sharding.counts(data, what.sharding) : what.shape.map(() => 1);
    return what.shape.slice(0, -2).map((size, at) =>
      counts[at] > 1 &&
      el("label", {}, `dimension ${at} (${size}), block `, el("input", {
        type: "number", min: 0, max: counts[at] - 1, value: state.page[at] || 0, "aria-label": `block of dimension ${at}`,
        onchange: (event) => {
          state.page[at] = Math.max(0, Math.min(counts[at] - 1, Number(event.target.value) || 0));
          panel.selected();
        },
      }), ` of ${counts[at]}`),
    );
  };

  const facts = (data, value, what) => {
    const rows = [["type", what.type]];
    if (what.sharding >= 0) {
      const sharding = data.shardings[what.sharding];
      const mesh = data.meshes[sharding.mesh];
      const owners = view.sharding.owners(data, what.sharding);
      const local = view.sharding.local(data, what.sharding, what.shape);
      const copies = owners.values().next().value.length / view.mesh.count(mesh, sharding.partial);
      rows.push(["sharding", sharding.text], ["a block", `${value.type}, ${view.bytes(local.reduce((a, b) => a * b, what.item))}`]);
      rows.push(["blocks", `${owners.size}, each on ${view.count(copies, "process", "processes")}`]);
      if (sharding.partial.length) rows.push(["partial", `each process holds a term: the value is their ${sharding.reduction}`]);
      const padded = what.shape.map((size, at) => [at, local[at] * view.sharding.counts(data, what.sharding)[at] - size]).filter(([, extra]) => extra > 0);
      if (padded.length) rows.push(["padding", padded.map(([at, extra]) => `${extra} at the end of dimension ${at}`).join(", ")]);
    } else rows.push(["sharding", data.grid.size > 1 ? "every process has an array of its own of this shape" : "one process holds it"]);
    return el("table", { class: "facts" }, rows.map(([name, text]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text))));
  };

  const list = (data, value) => {
    const all = choices(data).filter(([id, what]) => `${what} ${data.values[id].name} ${data.values[id].type}`.toLowerCase().includes(state.filter.toLowerCase()));
    return el(
      "div",
      { class: "list" },
      el("input", { type: "search", placeholder: "filter", "aria-label": "filter arrays", value: state.filter, oninput: (event) => { state.filter = event.target.value; refill(); } }),
      el("ul", { id: "array-list" }, rows(data, value, all)),
    );
  };
  const rows = (data, value, all) =>
    all.slice(0, 400).map(([id, what]) => {
      const each = data.values[id];
      const sharding = each.sharding >= 0 ? data.shardings[each.sharding].text : "";
      return el("li", { class: value && id === value.id ? "selected" : "" }, el("button", { onclick: () => { state.page = []; view.select({ value: id }); } }, `${what} `, el("b", {}, view.shorten(each.name, 80)), el("br"), el("small", {}, `${drawn(data, each).type} ${sharding}`)));
    });
  const refill = () => {
    const { data } = view;
    const all = choices(data).filter(([id, what]) => `${what} ${data.values[id].name} ${data.values[id].type}`.toLowerCase().includes(state.filter.toLowerCase()));
    view.clear(document.getElementById("array-list"), rows(data, chosen(data), all));
  };

  const main = (data, value) => {
    if (!value) return el("p", { class: "note" }, "The program has no arrays.");
    const what = drawn(data, value);
    const title = el("h3", {}, view.shorten(what.name, 80), value.op >= 0 ? ` of ${data.ops[value.op].name}` : "");
    if (!what.shape) return el("div", {}, title, el("p", { class: "note" }, `${what.type}: its shape is not known before the program runs.`));
    return el("div", { class: "grow" }, title, el("div", { class: "pager" }, pager(data, what)), picture(data, value, what), el("p", { class: "legend" }, "a colour for each block, with the ranks that hold it; dashed: padding"), facts(data, value, what));
  };

  const panel = {
    id: "arrays",
    title: "Arrays",
    draw(node) {
      const { data } = view;
      const value = chosen(data);
      view.clear(node, el("h2", {}, "Arrays"), el("div", { class: "columns" }, list(data, value), el("div", { id: "array-main", class: "grow" }, main(data, value))));
    },
    selected() {
      const { data } = view;
      view.clear(document.getElementById("array-main"), main(data, chosen(data)));
      refill();
    },
  };
  view.panels.push(panel);
})();
