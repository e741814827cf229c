// The program as a graph, folded by the names of the code: a scope is opened with a click, and a path leads back.
"use strict";

(() => {
  const { el, svg } = view;
  const [WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT] = [204, 84, 184, 46];
  const MOST = 48;
  // Ops that are not drawn: constants, of which nearly every op has some of its own, and ends of blocks.
  const QUIET = new Set(["constant", "iota"]);
  const isQuiet = (op) => op.ends || QUIET.has(op.name);
  const state = { path: [], colour: "kind", query: "" };

  // --- the tree of scopes: a node has the ops in it, and children made when they are asked for ---

  const allOps = (data, scope) => {
    if (!scope.all) scope.all = [...scope.ops, ...scope.scopes.flatMap((id) => allOps(data, data.scopes[id]))].sort((a, b) => a - b);
    return scope.all;
  };
  const ofScope = (data, id, name) => ({ kind: "scope", label: name || data.scopes[id].name || "program", ops: allOps(data, data.scopes[id]), scope: id });
  const children = (data, node) => {
    if (node.children) return node.children;
    let found;
    if (node.kind === "chunk") found = node.parts;
    else {
      const scope = data.scopes[node.scope];
      found = [
        ...scope.scopes.map((id) => ofScope(data, id)).filter((each) => each.ops.some((op) => !isQuiet(data.ops[op]))),
        ...scope.ops.filter((id) => !isQuiet(data.ops[id])).map((id) => ({ kind: "op", label: data.ops[id].name, ops: [id], op: id })),
      ].sort((a, b) => a.ops[0] - b.ops[0]);
    }
    const scopes = found.filter((each) => each.kind === "scope");
    const ops = found.filter((each) => each.kind !== "scope");
    // Where there are too many, runs of ops stand together; scopes only where they alone are too many.
    if (found.length > MOST) found = [...(scopes.length > MOST ? chunks(scopes, "scopes") : scopes), ...(ops.length > 12 ? chunks(ops, "ops") : ops)].sort((a, b) => a.ops[0] - b.ops[0]);
    node.children = found;
    return found;
  };
  const chunks = (found, what) => {
    const size = Math.ceil(found.length / Math.min(32, Math.ceil(found.length / 12)));
    const made = [];
    for (let at = 0; at < found.length; at += size) {
      const parts = found.slice(at, at + size);
      const ops = parts.flatMap((part) => part.ops).sort((a, b) => a - b);
      made.push({ kind: "chunk", label: `${what} ${at + 1}–${at + parts.length}`, ops, parts });
    }
    return made;
  };
  const root = (data) => (data.root ||= ofScope(data, 0, `@${data.text(data.function)}`));
  // Where the path leads; scopes that hold nothing but one other are passed through.
  const current = (data) => {
    let node = root(data);
    const trail = [node];
    for (const step of state.path) {
      const next = children(data, node)[step];
      if (!next || next.kind === "op") break;
      node = next;
      trail.push(node);
    }
    return trail;
  };
  const enter = (data) => {
    for (;;) {
      const trail = current(data);
      const inside = children(data, trail[trail.length - 1]);
      if (inside.length !== 1 || inside[0].kind === "op") return;
      state.path.push(0);
    }
  };
  const reveal = (data, op) => {
    state.path = [];
    let node = root(data);
    for (;;) {
      const inside = children(data, node);
      const at = inside.findIndex((each) => each.ops.includes(op));
      if (at < 0 || inside[at].kind === "op") return;
      state.path.push(at);
      node = inside[at];
    }
  };

  // --- colours ---

  const axesOf = (data, op) => {
    const names = new Set();
    for (const id of data.ops[op].outputs) {
      const { sharding } = data.values[id];
      if (sharding < 0) continue;
      const { mesh, dims } = data.shardings[sharding];
      for (const axis of dims.flat()) names.add(data.meshes[mesh].parts[axis][0]);
    }
    return [...names].sort();
  };
  const sum = (data, node, field) => node.ops.reduce((total, id) => total + data.ops[id][field], 0);
  const colourOf = (data, node, nodes) => {
    if (state.colour === "time" || state.colour === "bytes") {
      const field = state.colour === "time" ? "seconds" : "bytes";
      const most = Math.max(...nodes.map((each) => sum(data, each, field)));
      return most ? view.ramp(sum(data, node, field) / most) : null;
    }
    if (state.colour === "axes") {
      const axes = [...new Set(node.ops.flatMap((op) => axesOf(data, op)))].sort();
      const all = data.grid.mesh >= 0 ? data.meshes[data.grid.mesh].axes.map(([name]) => name) : [];
      const index = axes.reduce((bits, name) => bits | (1 << all.indexOf(name)), 0);
      return index > 0 ? view.colour(index - 1, 8) : null;
    }
    return null;
  };
  const isCollective = (data, node) => node.ops.some((op) => data.ops[op].collective >= 0);

  // --- the picture ---

  const edgesOf = (data, nodes) => {
    const home = new Map();
    nodes.forEach((node, at) => node.ops.forEach((op) => home.set(op, at)));
    const weights = new Map();
    nodes.forEach((node, to) => {
      for (const op of node.ops) {
        for (const id of data.ops[op].inputs) {
          const from = home.get(data.values[id].op);
          if (from === undefined || from === to) continue;
          const key = from * nodes.length + to;
          weights.set(key, (weights.get(key) || 0) + 1);
        }
      }
    });
    return [...weights].map(([key, weight]) => [Math.floor(key / nodes.length), key % nodes.length, weight]);
  };

  const told = (data, node) => {
    const collectives = node.ops.filter((op) => data.ops[op].collective >= 0).length;
    const lines = [node.label];
    if (node.kind !== "op") lines.push(view.countOps(data, node.ops));
    else if (data.ops[node.op].outputs.length) lines.push(data.values[data.ops[node.op].outputs[0]].type.replace(/^tensor<(.*)>$/, "$1"));
    if (sum(data, node, "seconds")) lines.push(view.timeOf(data, node.ops));
    if (collectives) lines.push(`${view.count(collectives, "collective")}, ${view.bytes(sum(data, node, "bytes"))}`);
    return lines;
  };

  const box = (data, node, at, [x, y], nodes) => {
    const fill = colourOf(data, node, nodes);
    const selected = node.ops.includes(view.selection.op);
    const lines = told(data, node);
    const kind = node.kind === "op" && data.ops[node.op].collective >= 0 ? "collective" : node.kind;
    const open = () => {
      if (node.kind === "op") view.select({ op: node.op });
      else {
        state.path.push(at);
        enter(data);
        panel.draw(view.node("program"));
      }
    };
    const ink = fill ? { fill: view.inkOn(fill) } : {};
    return svg(
      "g",
      {
        class: `box ${kind}${isCollective(data, node) ? " talks" : ""}${selected ? " selected" : ""}`,
        tabindex: 0, role: "button", "data-op": node.kind === "op" ? node.op : null, "aria-label": lines.join(", "),
        onclick: open,
        onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } },
      },
      svg("rect", { x: x - BOX_WIDTH / 2, y, width: BOX_WIDTH, height: BOX_HEIGHT, rx: node.kind === "op" ? 4 : 12, ...(fill ? { fill } : {}) }),
      svg("text", { x, y: y + 19, "text-anchor": "middle", ...ink }, view.shorten(node.label, 24)),
      svg("text", { x, y: y + 36, "text-anchor": "middle", class: "small", ...ink }, view.shorten(lines.slice(1).join(" · "), 30)),
      svg("title", {}, lines.join("\n")),
    );
  };

  const picture = (data, nodes) => {
    const edges = edgesOf(data, nodes);
    const { places, rank, width, height } = view.layout(nodes, edges, WIDTH, HEIGHT);
    const heaviest = Math.max(1, ...edges.map((edge) => edge[2]));
    const curves = edges.map(([from, to, weight]) => {
      const [[x1, y1], [x2, y2]] = [places[from], places[to]];
      const [start, end] = [y1 + BOX_HEIGHT, y2];
      const bend = Math.max(20, (end - start) / 2);
      const talks = isCollective(data, nodes[from]) && nodes[from].kind === "op";
      return svg("path", { d: `M${x1} ${start}C${x1} ${start + bend} ${x2} ${end - bend} ${x2} ${end}`, class: `edge${rank[from] > rank[to] ? " back" : ""}${talks ? " talks" : ""}`, "stroke-width": 1 + (2 * weight) / heaviest });
    });
    return view.picture("Operations and what they hand to each other", Math.max(320, width), height + 10, curves, nodes.map((node, at) => box(data, node, at, places[at], nodes)));
  };

  const trail = (data) => {
    const nodes = current(data);
    return el("nav", { class: "trail", "aria-label": "scopes" }, nodes.map((node, depth) =>
      el("button", { disabled: depth === nodes.length - 1, onclick: () => { state.path.length = depth; panel.draw(view.node("program")); } }, view.shorten(node.label, 40)),
    ));
  };

  const legend = (data) => {
    if (state.colour === "axes") {
      const all = data.grid.mesh >= 0 ? data.meshes[data.grid.mesh].axes.map(([name]) => name) : [];
      const kinds = Array.from({ length: Math.min(7, (1 << all.length) - 1) }, (_, index) => [index, all.filter((_, at) => (index + 1) & (1 << at)).join(" and ")]);
      return el("p", { class: "legend" }, kinds.map(([index, text]) => [el("i", { style: `background:${view.colour(index, 8)}` }), `cut along ${text} `]), "uncoloured: whole on every process");
    }
    if (state.colour === "kind") return el("p", { class: "legend" }, el("i", { class: "talks" }), "communicates; constants are not drawn");
    return el("p", { class: "legend" }, "dark: little, light: most");
  };

  const search = (data) => {
    const found = el("ul", { class: "found" });
    const look = (event) => {
      state.query = event.target.value.toLowerCase();
      const hits = state.query ? data.ops.filter((op) => `${op.name} ${data.place(op.place)} ${op.outputs.map((id) => data.values[id].name).join(" ")}`.toLowerCase().includes(state.query)).slice(0, 30) : [];
      view.clear(found, hits.map((op) => el("li", {}, el("button", { onclick: () => view.select({ op: op.id }) }, `${op.name} `, el("small", {}, view.shorten(view.near(data.place(op.place)), 60))))));
    };
    return el("div", { class: "search" }, el("input", { type: "search", placeholder: "find an op: name, value or place", "aria-label": "find an op", oninput: look }), found);
  };

  const panel = {
    id: "program",
    title: "Program",
    draw(node) {
      const { data } = view;
      enter(data);
      const nodes = current(data);
      const inside = children(data, nodes[nodes.length - 1]);
      const choose = el("select", { "aria-label": "colour by", onchange: (event) => { state.colour = event.target.value; panel.draw(node); } }, ["kind", "axes", "time", "bytes"].map((name) => el("option", { value: name, selected: state.colour === name }, name)));
      view.clear(
        node,
        el("h2", {}, "Program of one process"),
        el("div", { class: "bar" }, trail(data), el("label", {}, "colour by ", choose), search(data)),
        legend(data),
        inside.length ? picture(data, inside) : el("p", { class: "note" }, "No operations: the arguments are the results."),
      );
    },
    selected() {
      if (view.selection.op >= 0) reveal(view.data, view.selection.op);
      panel.draw(view.node("program"));
      const box = view.node("program").querySelector(".box.selected");
      if (box) box.scrollIntoView({ block: "nearest", inline: "nearest" });
    },
    reset() {
      state.path = [];
    },
  };
  view.panels.push(panel);
})();
