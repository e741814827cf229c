// The processes as cells, by axis; around them the nodes and racks of the network.
"use strict";

(() => {
  const { el, svg } = view;
  const MOST = 4096;

  // Rows and columns of the picture: the last mesh axis is a column's, all before it are rows'.
  const shape = (data) => {
    const mesh = data.grid.mesh >= 0 ? data.meshes[data.grid.mesh] : null;
    if (mesh && mesh.axes.length && !mesh.order && view.mesh.size(mesh) === data.grid.size) {
      const last = mesh.axes.length > 1 ? mesh.axes[mesh.axes.length - 1][1] : data.grid.size;
      return { columns: columns(data, last), axes: mesh.axes };
    }
    const axes = [["replica", data.grid.replicas], ["partition", data.grid.partitions]].filter((axis) => axis[1] > 1);
    return { columns: columns(data, data.grid.partitions > 1 ? data.grid.partitions : data.grid.size), axes };
  };
  view.gridShape = shape;
  // As many columns as `last`; where that makes a long strip, as many as make the units of the network whole rows.
  const columns = (data, last) => {
    const { size, levels } = data.grid;
    const fits = (count) => levels.every(([, processes]) => !processes || processes % count === 0 || count % processes === 0);
    const wide = Math.min(64, Math.max(1, Math.round(Math.sqrt(1.5 * size))));
    if (last <= 64 && size / last <= 24) return last;
    for (let count = wide; count > 1; count--) if (size % count === 0 && (count % last === 0 || last % count === 0) && fits(count)) return count;
    return Math.min(last, 64);
  };

  const told = (data, rank) => {
    const lines = [`rank ${rank}`, `replica ${Math.floor(rank / data.grid.partitions)}, partition ${rank % data.grid.partitions}`];
    if (data.grid.mesh >= 0) {
      const mesh = data.meshes[data.grid.mesh];
      const at = view.mesh.named(mesh, rank % view.mesh.size(mesh));
      if (at.length) lines.push(at.map(([name, index]) => `${name} = ${index}`).join(", "));
    }
    for (const [name, processes] of data.grid.levels)
      lines.push(`${name} ${processes ? Math.floor(rank / processes) : 0}`);
    return lines;
  };
  view.process = told;

  // The ranks that are drawn: all, or as many from the first to the last unit as there is room for.
  const sampled = (size) => {
    if (size <= MOST) return Array.from({ length: size }, (_, rank) => rank);
    return Array.from({ length: MOST }, (_, index) => Math.floor((index * size) / MOST));
  };

  const groupOf = (data) => {
    const { collective } = view.selection;
    const colours = new Map();
    if (collective < 0) return colours;
    view.groupsOf(data, data.collectives[collective]).forEach((members, index, all) => {
      for (const member of members) colours.set(member, view.colour(index, Math.min(all.length, 64)));
    });
    return colours;
  };

  const draw = (data) => {
    const { columns } = shape(data);
    const ranks = sampled(data.grid.size);
    const cell = ranks.length > 1024 ? 12 : ranks.length > 256 ? 22 : ranks.length > 32 ? 40 : 60;
    const unit = data.grid.levels.length && data.grid.levels[0][1] ? data.grid.levels[0][1] : 0;
    const colours = groupOf(data);
    const gap = (index) => (unit ? 8 * Math.floor(index / unit / Math.max(1, columns / unit)) : 0);
    const x = (index) => 12 + (index % columns) * cell + (unit && unit < columns ? 8 * Math.floor((index % columns) / unit) : 0);
    const y = (index) => 30 + Math.floor(index / columns) * cell + (unit >= columns ? gap(index) : 0);
    const cells = ranks.map((rank, index) => {
      const fill = colours.get(rank);
      const selected = rank === view.selection.rank;
      return svg(
        "g",
        view.selectable({ class: `cell${selected ? " selected" : ""}`, "data-rank": rank, "aria-label": told(data, rank).join(", ") }, { rank }),
        svg("rect", { x: x(index) + 1, y: y(index) + 1, width: cell - 2, height: cell - 2, rx: Math.min(4, cell / 6), ...(fill ? { fill } : {}) }),
        cell >= 20 && svg("text", { x: x(index) + cell / 2, y: y(index) + cell / 2 + 4, "text-anchor": "middle", ...(fill ? { fill: view.inkOn(fill) } : {}) }, rank),
        svg("title", {}, told(data, rank).join("\n")),
      );
    });
    const frames = [];
    data.grid.levels.forEach(([name, processes], level) => {
      if (!processes || processes > ranks.length || ranks.length < data.grid.size) return;
      const pad = 2 + 2 * level;
      for (let first = 0; first < ranks.length; first += processes) {
        const last = Math.min(ranks.length, first + processes) - 1;
        const [left, right] = processes >= columns ? [x(0), x(columns - 1)] : [x(first), x(last)];
        frames.push(
          svg("rect", { class: "unit", x: left - pad, y: y(first) - pad, width: right - left + cell + 2 * pad, height: y(last) - y(first) + cell + 2 * pad, rx: 5 }, svg("title", {}, `${name} ${first / processes}`)),
        );
      }
    });
    const width = Math.max(320, x(Math.min(columns, ranks.length) - 1) + cell + 20);
    return view.picture(
      `${view.count(data.grid.size, "process", "processes")} as a grid`,
      width,
      y(ranks.length - 1) + cell + 20,
      frames,
      cells,
      svg("text", { x: 12, y: 16, class: "axis" }, axisTitle(data)),
    );
  };

  const axisTitle = (data) => {
    const { axes } = shape(data);
    return axes.length ? axes.map(([name, size]) => `${name} = ${size}`).join("  ×  ") : "one process";
  };

  const facts = (data) => {
    const rows = [
      ["processes", data.grid.size.toLocaleString("en")],
      ["grid", `${data.grid.replicas}x${data.grid.partitions} (replicas by partitions)`],
      ["rank", `replica_id * ${data.grid.partitions} + partition_id`],
    ];
    if (data.grid.mesh >= 0) {
      const mesh = data.meshes[data.grid.mesh];
      rows.push(["mesh", mesh.axes.map(([name, size]) => `"${name}"=${size}`).join(", ") || "one device"]);
      if (mesh.order) rows.push(["devices", "in an order of the program's own"]);
    }
    for (const [name, processes, latency, bandwidth, uplink] of data.grid.levels)
      rows.push([`level ${name}`, `${processes ? view.count(processes, "process", "processes") : "all"}, ${view.seconds(latency)} latency, ${view.bytes(bandwidth)}/s${uplink ? `, uplink ${view.bytes(uplink)}/s` : ""}`]);
    rows.push(["machine", data.grid.machine]);
    return el("table", { class: "facts" }, rows.map(([name, text]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text))));
  };

  const panel = {
    id: "grid",
    title: "Processes",
    draw(node) {
      const { data } = view;
      const sampledNote = data.grid.size > MOST && el("p", { class: "note" }, `${MOST.toLocaleString("en")} of ${data.grid.size.toLocaleString("en")} processes are drawn, evenly from the first to the last.`);
      const { collective } = view.selection;
      const each = collective >= 0 ? data.collectives[collective] : null;
      view.clear(
        node,
        el("h2", {}, "Processes"),
        each && el("p", { class: "note" }, `Coloured by the ${view.count(each.groups >= 0 ? data.groups[each.groups].count : 1, "group")} of the selected ${each.kind}: ${view.groupText(data, each, 90)} `, el("button", { onclick: () => view.select({ collective: -1, op: -1, value: -1 }) }, "clear")),
        sampledNote,
        el("div", { class: "columns" }, draw(data), facts(data)),
      );
    },
    selected() {
      panel.draw(view.node("grid"));
    },
  };
  view.panels.push(panel);
})();
