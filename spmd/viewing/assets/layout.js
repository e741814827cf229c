// A layered layout of a graph: a node stands below all that it takes from, and near what it is joined to.
"use strict";

// LocationTable in an order in which a node comes after all that it takes from, as far as there are no circles.
view.sorted = (count, edges) => {
  const waits = Array.from({ length: count }, () => new Set());
  const users = Array.from({ length: count }, () => []);
  for (const [from, to] of edges) {
    waits[to].add(from);
    users[from].push(to);
  }
  const left = new Set(Array.from({ length: count }, (_, at) => at));
  const rank = [];
  while (left.size) {
    let next = -1;
    for (const at of left) if (!waits[at].size) { next = at; break; }
    if (next < 0) [next] = left;
    left.delete(next);
    rank[next] = count - left.size - 1;
    for (const to of users[next]) waits[to].delete(next);
  }
  return rank;
};

// `nodes` in program order; `edges` [from, to, weight] by place in `nodes`. Gives each node x and y, and the extent.
view.layout = (nodes, edges, width, height) => {
  const layer = nodes.map(() => 0);
  const rank = view.sorted(nodes.length, edges);
  const order = nodes.map((_, at) => at).sort((a, b) => rank[a] - rank[b]);
  const forward = edges.filter(([from, to]) => rank[from] < rank[to]);
  const into = nodes.map(() => []);
  const out = nodes.map(() => []);
  for (const [from, to] of forward) {
    into[to].push(from);
    out[from].push(to);
  }
  order.forEach((at) => (layer[at] = into[at].reduce((most, from) => Math.max(most, layer[from] + 1), 0)));
  // What nobody feeds stands right above its first user.
  for (const at of [...order].reverse())
    if (!into[at].length && out[at].length) layer[at] = Math.max(0, Math.min(...out[at].map((to) => layer[to])) - 1);
  const layers = [];
  nodes.forEach((_, at) => (layers[layer[at]] ||= []).push(at));
  const place = nodes.map(() => 0);
  const number = (row) => row.forEach((at, index) => (place[at] = index - (row.length - 1) / 2));
  layers.forEach(number);
  const mean = (list, at) => (list.length ? list.reduce((sum, other) => sum + place[other], 0) / list.length : place[at]);
  for (let sweep = 0; sweep < 6; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? layers : [...layers].reverse()) {
      if (!row) continue;
      const wish = new Map(row.map((at) => [at, mean((down ? into : out)[at], at)]));
      row.sort((a, b) => wish.get(a) - wish.get(b) || a - b);
      number(row);
    }
  }
  const widest = layers.reduce((most, row) => Math.max(most, row ? row.length : 0), 1);
  const middle = (widest * width) / 2;
  return {
    rank,
    places: nodes.map((_, at) => [middle + place[at] * width, 24 + layer[at] * height]),
    width: widest * width,
    height: layers.length * height + 24,
  };
};
