// What all panels share: the data by name, elements, numbers for people, and the one selection that links panels.
"use strict";

const view = {
  documents: JSON.parse(document.getElementById("spmd-data").textContent).documents,
  panels: [],
  data: null,
  selection: { op: -1, rank: -1, value: -1, collective: -1 },
};

view.prepare = (number) => {
  const data = view.documents[number];
  data.text = (at) => (at < 0 ? "" : data.texts[at]);
  data.place = (at) => (at < 0 ? "" : data.texts[data.places[at][0]]);
  if (!data.index) view.index(data);
  return data;
};
view.use = (number) => {
  view.data = view.prepare(number);
  view.number = number;
};

// Named fields of the rows that the data has as lists, and what is looked up of them often.
view.index = (data) => {
  data.index = true;
  const op = (row, id) => ({
    id, name: data.texts[row[0]], inputs: row[1], outputs: row[2], scope: row[3], place: row[4], reshard: row[5],
    rule: row[6], ends: row[7], collective: -1, seconds: 0, bytes: 0, units: [],
  });
  const value = (row, id) => ({
    id, name: data.texts[row[0]], type: data.texts[row[1]], shape: row[2], item: row[3], whole: row[4],
    sharding: row[5], op: row[6], argument: row[7],
  });
  const whole = (row, id) => ({
    id, name: data.texts[row[0]], type: data.texts[row[1]], shape: row[2], item: row[3], sharding: row[4],
    place: row[5], asked: row[6] === 1, grown: row[7],
  });
  data.ops = data.ops.map(op);
  data.values = data.values.map(value);
  data.globals = data.globals.map(whole);
  data.scopes = data.scopes.map((row, id) => ({ id, name: data.texts[row[0]], parent: row[1], ops: [], scopes: [] }));
  for (const scope of data.scopes) if (scope.parent >= 0) data.scopes[scope.parent].scopes.push(scope.id);
  for (const each of data.ops) data.scopes[each.scope].ops.push(each.id);
  data.collectives.forEach((each, number) => {
    each.number = number;
    each.sent = each.messages.reduce((sum, message) => sum + message.sent, 0);
    each.received = each.messages.reduce((sum, message) => sum + message.received, 0);
    each.sends = each.turns * each.sent;
    each.receives = each.turns * each.received;
    each.takes = (each.seconds || 0) * each.turns;
    if (each.op >= 0) {
      data.ops[each.op].collective = number;
      data.ops[each.op].bytes += each.turns * Math.max(each.sent, each.received);
    }
  });
  data.units = data.units.map(([title, place, seconds, turns, ops, what, shares], id) => {
    ops.forEach((number, at) => {
      data.ops[number].seconds += seconds * shares[at];
      data.ops[number].units.push(id);
    });
    return { id, title: data.texts[title], place: data.texts[place], seconds, turns, ops, what };
  });
};

// How many of the ops do something: the ends of blocks hand results on.
view.countOps = (data, ids) => view.count(ids.filter((id) => !data.ops[id].ends).length, "op");
// The time of ops: an estimate where their units have other ops, too; of a loop, that of all turns.
view.timeOf = (data, ids) => {
  const own = new Set(ids);
  const units = [...new Set(ids.flatMap((id) => data.ops[id].units))].map((id) => data.units[id]);
  const seconds = ids.reduce((total, id) => total + data.ops[id].seconds, 0);
  const estimated = units.some((unit) => unit.ops.some((id) => !own.has(id)));
  const turns = ids.length === 1 ? Math.max(1, ...units.map((unit) => unit.turns)) : 1;
  return `${estimated ? "about " : ""}${view.seconds(seconds)}${view.inTurns(turns)}`;
};
view.inTurns = (turns) => (turns > 1 ? ` in all ${turns.toLocaleString("en")} turns` : "");

// --- elements ---

view.fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of (Array.isArray(children) ? children : [children]).flat(9)) {
    if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
};
view.el = (tag, attributes, ...children) => view.fill(document.createElement(tag), attributes, children);
view.svg = (tag, attributes, ...children) =>
  view.fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
view.clear = (node, ...children) => {
  node.replaceChildren();
  return view.fill(node, {}, children);
};

// An SVG with a name for those who cannot see it.
view.drawing = (name, width, height, ...children) =>
  view.svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": name, class: "picture" },
    view.svg("title", {}, name),
    ...children,
  );
// A drawing in an area that scrolls, with a button that saves it.
view.picture = (name, width, height, ...children) => {
  const { el } = view;
  const drawing = view.drawing(name, width, height, ...children);
  const save = el("button", { class: "save", title: "Save this picture as SVG", onclick: () => view.save(drawing, name) }, "save SVG");
  return el("figure", {}, el("div", { class: "scroll", tabindex: 0, "aria-label": name }, drawing), el("figcaption", {}, save));
};

// The text of a picture that stands alone: computed colours are written into it, since it leaves its style behind.
view.serialized = (drawing) => {
  const copy = drawing.cloneNode(true);
  const styled = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];
  const from = [drawing, ...drawing.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, index) => {
    const computed = getComputedStyle(node);
    for (const name of styled) to[index].setAttribute(name, computed.getPropertyValue(name));
    to[index].removeAttribute("class");
    to[index].removeAttribute("tabindex");
  });
  const background = getComputedStyle(document.body).backgroundColor;
  copy.insertBefore(view.svg("rect", { width: "100%", height: "100%", fill: background }), copy.firstChild);
  if (drawing.dataset.whole) {
    const [, , width, height] = drawing.dataset.whole.split(" ");
    view.fill(copy, { viewBox: drawing.dataset.whole, width, height });
  }
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
};

view.save = (drawing, name) => {
  const url = URL.createObjectURL(new Blob([view.serialized(drawing)], { type: "image/svg+xml" }));
  const link = view.el("a", { href: url, download: `${name.replace(/[^\w-]+/g, "-").slice(0, 60)}.svg` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};

// --- numbers for people ---

view.bytes = (number) => {
  for (const [prefix, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (number >= 0.9995 * size) return `${Number((number / size).toPrecision(3))} ${prefix}B`;
  return `${Math.round(number)} B`;
};
view.seconds = (number) => {
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]])
    if (number >= size) return `${Number((number / size).toPrecision(3))} ${unit}`;
  return `${Math.round(number * 1e9)} ns`;
};
view.share = (part, whole) => `${(whole ? (100 * part) / whole : 0).toFixed(1)} %`;
view.count = (number, noun, plural) => `${number.toLocaleString("en")} ${number === 1 ? noun : plural || `${noun}s`}`;
// A place without the folders of its file.
view.near = (place) => place.replace(/^.*\/(?=[^/]*$)/, "");
view.shorten = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

// --- colours that are told apart without seeing red and green ---

view.categories = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c00", "#6a4c93"];
const CIVIDIS = [[0, 34, 78], [30, 60, 110], [87, 92, 109], [125, 124, 120], [167, 158, 110], [211, 193, 89], [254, 232, 56]];
view.ramp = (part) => {
  const at = Math.min(0.99999, Math.max(0, part)) * (CIVIDIS.length - 1);
  const [low, high] = [CIVIDIS[Math.floor(at)], CIVIDIS[Math.floor(at) + 1]];
  return `rgb(${low.map((part, index) => Math.round(part + (high[index] - part) * (at % 1))).join(",")})`;
};
// A tint of one colour, deeper for a larger `part` of 1; it lies on the colour of the page.
view.tint = (part) => ({ fill: "var(--heat)", "fill-opacity": (0.06 + 0.94 * Math.min(1, part)).toFixed(3) });
view.inkOnTint = (part) => (part > 0.5 ? "var(--paper)" : "var(--ink)");
// A legend of tints or of the ramp: what the least and the most stand for.
view.scale = (low, high, ramp) => {
  const stops = [0, 0.25, 0.5, 0.75, 1].map((part) => (ramp ? view.ramp(part) : `color-mix(in srgb, var(--heat) ${6 + 94 * part}%, var(--paper))`));
  return view.el("span", { class: "scale" }, low, view.el("i", { style: `background:linear-gradient(90deg,${stops.join()})` }), high);
};
// The colour of one of `count` things, and one of text on it.
view.colour = (index, count) => (count <= 8 ? view.categories[index % 8] : view.ramp(count > 1 ? index / (count - 1) : 0));
view.inkOn = (colour) => {
  const parts = colour.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
    : colour.match(/\d+/g).map(Number);
  return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 140 ? "#000" : "#fff";
};

// --- selection ---

// Selecting an op selects its collective and its value, and the other way round; a rank is selected beside them.
view.select = (change) => {
  const { data, selection } = view;
  const next = { ...selection, ...change };
  if ("op" in change && change.op >= 0) {
    const op = data.ops[change.op];
    next.collective = op.collective;
    next.value = op.outputs.length ? op.outputs[0] : -1;
  } else if ("collective" in change && change.collective >= 0) {
    next.op = data.collectives[change.collective].op;
    next.value = next.op >= 0 && data.ops[next.op].outputs.length ? data.ops[next.op].outputs[0] : -1;
  } else if ("value" in change && change.value >= 0) {
    next.op = data.values[change.value].op;
    next.collective = next.op >= 0 ? data.ops[next.op].collective : -1;
  }
  view.selection = next;
  view.changed();
};
view.changed = () => {
  view.details.draw();
  const panel = view.panels.find((each) => each.id === view.open);
  if (panel && panel.selected) panel.selected();
  for (const other of view.panels) if (other !== panel) other.stale = true;
};
view.selectable = (attributes, change) => ({
  ...attributes,
  tabindex: 0,
  onclick: () => view.select(change),
  onkeydown: (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      view.select(change);
    }
  },
});
