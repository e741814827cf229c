// The program as a graph, folded by the names of the code: a scope is opened with a click, and a path leads back.
"use strict";

(() => {
  const { el, svg } = view;
  const [WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT] = [204, 94, 188, 62];
  // The most nodes that are drawn one by one, and the most groups of lines.
  const [MOST, MOST_GROUPS] = [48, 24];
  // Ops that are not drawn: constants, of which nearly every op has some of its own, and ends of blocks.
  const QUIET = new Set(["constant", "iota"]);
  const isQuiet = (op) => op.ends || QUIET.has(op.name);
  const state = { path: [], colour: null, query: "", box: null };

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
    // Where there are too many, ops of neighbouring lines stand together; scopes only where they alone are too many.
    if (found.length > MOST) found = [...(scopes.length > MOST ? pieces(scopes, MOST_GROUPS).map(ofScopes) : scopes), ...(ops.length > 12 ? lines(data, ops) : ops)].sort((a, b) => a.ops[0] - b.ops[0]);
    node.children = found;
    return found;
  };
  const pieces = (found, most) => {
    const size = Math.ceil(found.length / most);
    return Array.from({ length: Math.ceil(found.length / size) }, (_, at) => found.slice(at * size, (at + 1) * size));
  };
  const chunk = (label, parts) => (parts.length === 1 ? parts[0] : { kind: "chunk", label, parts, ops: parts.flatMap((part) => part.ops).sort((a, b) => a - b) });
  const ofScopes = (parts) => chunk(`${view.shorten(parts[0].label, 14)} … ${view.shorten(parts[parts.length - 1].label, 14)}`, parts);
  const lineOf = (data, op) => {
    const frames = data.places[data.ops[op].place][1];
    return frames.length ? [view.near(data.text(frames[0][0])), frames[0][1]] : [view.near(data.place(data.ops[op].place)), 0];
  };
  // The ops of each line, and where these are many, of lines that follow each other.
  const lines = (data, ops) => {
    const found = new Map();
    for (const part of ops) {
      const line = lineOf(data, part.op);
      if (!found.has(line.join())) found.set(line.join(), { line, parts: [] });
      found.get(line.join()).parts.push(part);
    }
    return pieces([...found.values()], MOST_GROUPS).map((group) => {
      const [file] = group[0].line;
      const numbers = group.map((run) => run.line[1]);
      const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
      const [first, last] = [group[0].line, group[group.length - 1].line];
      const label = group.some((run) => run.line[0] !== file) ? `${first.join(":")} … ${last.join(":")}` : low === high ? `${file}:${low}` : `lines ${low}-${high}`;
      return chunk(label, group.flatMap((run) => run.parts));
    });
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
    const path = [];
    let node = root(data);
    for (;;) {
      const inside = children(data, node);
      const at = inside.findIndex((each) => each.ops.includes(op));
      if (at < 0 || inside[at].kind === "op") break;
      path.push(at);
      node = inside[at];
    }
    if (path.join() !== state.path.join()) goTo(path);
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
  const FIELDS = { time: "seconds", bytes: "bytes" };
  const colouredBy = (data) => state.colour || (data.units.some((unit) => unit.seconds > 0) ? "time" : "kind");
  const mostOf = (data, nodes) => Math.max(0, ...nodes.map((node) => sum(data, node, FIELDS[colouredBy(data)])));
  // [attributes of the box, colour of its text], null where it has no colour of its own.
  const colourOf = (data, node, most) => {
    const by = colouredBy(data);
    if (FIELDS[by]) {
      const part = most ? sum(data, node, FIELDS[by]) / most : 0;
      return part > 0 ? [view.tint(part), view.inkOnTint(part)] : null;
    }
    if (by === "axes") {
      const axes = [...new Set(node.ops.flatMap((op) => axesOf(data, op)))].sort();
      const all = data.grid.mesh >= 0 ? data.meshes[data.grid.mesh].axes.map(([name]) => name) : [];
      const index = axes.reduce((bits, name) => bits | (1 << all.indexOf(name)), 0);
      return index > 0 ? [{ fill: view.colour(index - 1, 8) }, view.inkOn(view.colour(index - 1, 8))] : null;
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

  // The ops that a group is about: those that take most time, or of which there are most.
  const about = (data, node) => {
    const names = new Map();
    for (const id of node.ops) {
      const op = data.ops[id];
      if (isQuiet(op)) continue;
      const [count, seconds] = names.get(op.name) || [0, 0];
      names.set(op.name, [count + 1, seconds + op.seconds]);
    }
    const ordered = [...names].sort(([, a], [, b]) => b[1] - a[1] || b[0] - a[0]);
    return ordered.slice(0, 3).map(([name, [count]]) => (count > 1 ? `${name} ×${count}` : name)).join(", ");
  };
  const told = (data, node) => {
    const collectives = node.ops.filter((op) => data.ops[op].collective >= 0).length;
    const last = [];
    if (node.kind !== "op") last.push(view.countOps(data, node.ops));
    if (sum(data, node, "seconds")) last.push(view.timeOf(data, node.ops));
    if (collectives) last.push(`${node.kind === "op" ? "" : `${view.count(collectives, "collective")}, `}${view.bytes(sum(data, node, "bytes"))}`);
    const what = node.kind !== "op" ? about(data, node) : data.ops[node.op].outputs.length ? data.values[data.ops[node.op].outputs[0]].type.replace(/^tensor<(.*)>$/, "$1") : "";
    return [node.label, what, last.join(" · ")];
  };

  const box = (data, node, at, [x, y], most) => {
    const [fill, ink] = colourOf(data, node, most) || [{}, null];
    const selected = node.ops.includes(view.selection.op);
    const lines = told(data, node);
    const kind = node.kind === "op" && data.ops[node.op].collective >= 0 ? "collective" : node.kind;
    const open = () => {
      if (node.kind === "op") view.select({ op: node.op });
      else {
        goTo([...state.path, at]);
        enter(data);
        panel.draw(view.node("program"));
      }
    };
    const shape = { x: x - BOX_WIDTH / 2, y, width: BOX_WIDTH, height: BOX_HEIGHT, rx: node.kind === "op" ? 4 : 12 };
    const text = (line, most, name) => svg("text", { x, y: y + 19 + 17 * line, "text-anchor": "middle", ...(ink ? { fill: ink } : {}), class: name }, view.shorten(lines[line], most));
    return svg(
      "g",
      {
        class: `box ${kind}${isCollective(data, node) ? " talks" : ""}${selected ? " selected" : ""}`,
        tabindex: 0, role: "button", "data-op": node.kind === "op" ? node.op : null, "aria-label": lines.filter(Boolean).join(", "),
        onclick: open,
        onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } },
      },
      svg("rect", { ...shape, class: "under" }),
      svg("rect", { ...shape, ...fill }),
      text(0, 22, "name"), text(1, 30, "small"), text(2, 31, "small"),
      svg("title", {}, [...lines.filter(Boolean), node.kind === "op" ? view.near(data.place(data.ops[node.op].place)) : "click to open"].join("\n")),
    );
  };

  const picture = (data, nodes, room) => {
    const edges = edgesOf(data, nodes);
    const { places, rank, width, height } = view.layout(nodes, edges, WIDTH, HEIGHT, room);
    const heaviest = Math.max(1, ...edges.map((edge) => edge[2]));
    const most = FIELDS[colouredBy(data)] ? mostOf(data, nodes) : 0;
    const curves = edges.map(([from, to, weight]) => {
      const [[x1, y1], [x2, y2]] = [places[from], places[to]];
      const [start, end] = [y1 + BOX_HEIGHT, y2];
      const bend = Math.max(20, (end - start) / 2);
      const talks = isCollective(data, nodes[from]) && nodes[from].kind === "op";
      const far = Math.abs(x2 - x1) > 3 * WIDTH || end < start;
      return svg("path", { d: `M${x1} ${start}C${x1} ${start + bend} ${x2} ${end - bend} ${x2} ${end}`, class: `edge${rank[from] > rank[to] ? " back" : ""}${talks ? " talks" : ""}${far ? " far" : ""}`, "stroke-width": 1 + (2 * weight) / heaviest });
    });
    return view.zoomable("Operations and what they hand to each other", [width, height], room, state, curves, nodes.map((node, at) => box(data, node, at, places[at], most)));
  };

  // Shows the scope at the end of `path`, all of it.
  const goTo = (path) => Object.assign(state, { path, box: null });
  const trail = (data) => {
    const nodes = current(data);
    return el("nav", { class: "trail", "aria-label": "scopes" }, nodes.map((node, depth) =>
      el("button", { disabled: depth === nodes.length - 1, onclick: () => { goTo(state.path.slice(0, depth)); panel.draw(view.node("program")); } }, view.shorten(node.label, 40)),
    ));
  };

  const legend = (data, nodes) => {
    const by = colouredBy(data);
    const parts = [];
    if (by === "axes") {
      const all = data.grid.mesh >= 0 ? data.meshes[data.grid.mesh].axes.map(([name]) => name) : [];
      const kinds = Array.from({ length: Math.min(7, (1 << all.length) - 1) }, (_, index) => [index, all.filter((_, at) => (index + 1) & (1 << at)).join(" and ")]);
      parts.push(kinds.map(([index, text]) => [el("i", { style: `background:${view.colour(index, 8)}` }), `cut along ${text} `]), "uncoloured: whole on every process. ");
    } else if (FIELDS[by]) {
      const most = mostOf(data, nodes);
      parts.push(most ? view.scale("0", by === "time" ? view.seconds(most) : `${view.bytes(most)} sent or received`) : `${by}: none here. `);
    }
    if (data.collectives.length) parts.push(el("i", { class: "talks" }), "communicates; ");
    return el("p", { class: "legend" }, parts, "round boxes open with a click; constants are not drawn");
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
      const choose = el("select", { "aria-label": "colour by", onchange: (event) => { state.colour = event.target.value; panel.draw(node); } }, ["time", "bytes", "axes", "kind"].map((name) => el("option", { value: name, selected: colouredBy(data) === name }, name)));
      view.clear(
        node,
        el("h2", {}, "Program of one process"),
        el("div", { class: "bar" }, trail(data), el("label", {}, "colour by ", choose), search(data)),
        legend(data, inside),
        inside.length ? picture(data, inside, view.room(node, 190)) : el("p", { class: "note" }, "No operations: the arguments are the results."),
      );
    },
    selected() {
      if (view.selection.op >= 0) reveal(view.data, view.selection.op);
      panel.draw(view.node("program"));
    },
    reset() {
      goTo([]);
    },
  };
  addEventListener("resize", () => { if (view.open === "program") panel.draw(view.node("program")); });
  view.panels.push(panel);
})();
