// A layered layout of a graph: a node stands below all that it takes from, and near what it is joined to.
"use strict";

// Places in an order in which a node comes after all that it takes from, as far as there are no circles.
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

// Rows side by side in as many bands as make them fit best into `room`: [rows in a band, width, height, x of each row].
view.bands = (rows, width, height, room) => {
  let best = null;
  for (let count = 1; count <= Math.min(rows.length, 12); count++) {
    const size = Math.ceil(rows.length / count);
    const lefts = [];
    let across = 0;
    for (let first = 0; first < rows.length; first += size) {
      const widest = Math.max(...rows.slice(first, first + size).map((row) => row.length));
      for (const row of rows.slice(first, first + size)) lefts.push(across + ((widest - row.length) * width) / 2);
      across += widest * width;
    }
    const down = size * height;
    const scale = Math.min(1, room[0] / across, room[1] / down);
    if (!best || scale > 1.05 * best.scale) best = { scale, size, lefts, width: across, height: down };
  }
  return best;
};

// `nodes` in program order; `edges` [from, to, weight] by place in `nodes`. Gives each node x and y, and the extent, for
// `room`, [width, height].
view.layout = (nodes, edges, width, height, room) => {
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
  const found = [];
  nodes.forEach((_, at) => (found[layer[at]] ||= []).push(at));
  const layers = found.filter((row) => row);
  const place = nodes.map(() => 0);
  const number = (row) => row.forEach((at, index) => (place[at] = index - (row.length - 1) / 2));
  layers.forEach(number);
  const mean = (list, at) => (list.length ? list.reduce((sum, other) => sum + place[other], 0) / list.length : place[at]);
  for (let sweep = 0; sweep < 6; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? layers : [...layers].reverse()) {
      const wish = new Map(row.map((at) => [at, mean((down ? into : out)[at], at)]));
      row.sort((a, b) => wish.get(a) - wish.get(b) || a - b);
      number(row);
    }
  }
  // Nodes of a layer hand each other nothing: wide layers take several rows.
  const most = Math.max(4, Math.ceil(Math.sqrt(1.6 * nodes.length)));
  const rows = layers.flatMap((row) => Array.from({ length: Math.ceil(row.length / most) }, (_, at) => row.slice(at * most, (at + 1) * most)));
  const bands = view.bands(rows, width, height, room);
  const places = [];
  rows.forEach((row, number) => row.forEach((at, index) => (places[at] = [bands.lefts[number] + (index + 0.5) * width, 12 + (number % bands.size) * height])));
  return { rank, places, width: bands.width, height: bands.height };
};
