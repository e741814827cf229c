// The predicted step of each kind of process over time, and measured steps under it on the same scale.
"use strict";

(() => {
  const { el, svg } = view;
  const [WIDTH, LEFT, ROW, TOP] = [900, 130, 40, 26];
  const COLOURS = { compute: "#56b4e9", collective: "#e69f00", start: "#f0d98c", wait: "#999999", measured: "#0072b2" };
  const state = { from: 0, to: 0 };

  const range = (data) => {
    const ends = [data.timeline ? data.timeline.seconds * 1e9 : 0, ...(data.measured ? data.measured.tracks.map((track) => track.end) : [])];
    return Math.max(1, ...ends);
  };

  const bar = (x1, x2, y, height, kind, text, more) =>
    svg("rect", { class: "bar", x: x1, y, width: Math.max(kind === "compute" ? 0.3 : 1, x2 - x1), height, fill: COLOURS[kind], "data-kind": kind, ...more }, svg("title", {}, text));

  // The name of a bar where there is room for it, on it.
  const label = (x1, x2, y, height, kind, name) => {
    const room = Math.floor((x2 - x1 - 6) / 6.5);
    if (height < 20 || room < 4 || !name) return null;
    return svg("text", { class: "small label", x: (x1 + x2) / 2, y: y + height / 2 + 4, "text-anchor": "middle", fill: view.inkOn(COLOURS[kind]) }, view.shorten(name, room));
  };

  // Bars of a track from the time `from` to `to`. Those too thin to be seen are drawn together with what is next to them, and communication
  // above computing: there is little of it, and it is what one looks for.
  const bars = (moments, { from, to }, x, y, height) => {
    const drawn = [];
    let last = { end: -1, kind: "" };
    const labels = [];
    for (const { kind, begins, ends, name, text, attributes } of moments) {
      if (ends < from || begins > to) continue;
      const [x1, x2] = [x(Math.max(from, begins)), x(Math.min(to, ends))];
      if (x2 - last.end < 0.25 && kind === last.kind && !attributes.class) continue;
      drawn.push(bar(x1, x2, y, height, kind, text, attributes));
      labels.push(label(x1, x2, y, height, kind, name));
      last = { end: x2, kind };
    }
    return [...drawn.sort((a, b) => (a.dataset.kind !== "compute") - (b.dataset.kind !== "compute")), ...labels.filter(Boolean)];
  };

  const trackName = (track) => `rank ${track.rank}${track.ranks.length > 1 ? ` and ${track.ranks.length - 1} like it` : ""}`;
  // The op of a unit that takes most of its time, and whether there are others.
  const nameOf = (data, unit) => {
    if (!unit.ops.length) return unit.title;
    const [first] = [...unit.ops].sort((a, b) => data.ops[b].seconds - data.ops[a].seconds);
    return data.ops[first].name + (unit.ops.length > 1 ? ` +${unit.ops.length - 1}` : "");
  };
  const predicted = (data, track) =>
    track.moments.flatMap(([number, arrives, begins, ends]) => {
      const unit = data.units[number];
      const selected = unit.ops.includes(view.selection.op);
      const told = `${view.shorten(unit.title, 160)}\n${unit.place}\n${view.seconds((ends - begins) / 1e9)}${view.inTurns(unit.turns)}`;
      const attributes = { "data-unit": number, "data-turns": unit.turns, onclick: () => unit.ops.length && view.select({ op: unit.ops[unit.ops.length - 1] }), ...(selected ? { class: "bar selected" } : {}) };
      const found = [];
      if (begins > arrives && unit.what !== "start") found.push({ kind: "wait", begins: arrives, ends: begins, name: "waits", text: `waits: ${told}`, attributes: {} });
      if (ends > begins) found.push({ kind: unit.what, begins, ends, name: nameOf(data, unit), text: told, attributes });
      return found;
    });

  // The predicted step of up to four kinds of processes, each as wide as there is room.
  view.smallTimeline = (data) => {
    const [width, height] = [1200, 18];
    const whole = { from: 0, to: data.timeline.seconds * 1e9 };
    const row = (track) => {
      const drawing = view.drawing(`the step of ${trackName(track)}`, width, height, bars(predicted(data, track), whole, (at) => (width * at) / whole.to, 0, height));
      drawing.setAttribute("preserveAspectRatio", "none");
      return [el("small", {}, trackName(track)), drawing];
    };
    return el("div", { class: "strip", onclick: () => view.show("time") }, data.timeline.tracks.slice(0, 4).map(row), el("span"), el("small", { class: "ends" }, el("span", {}, "0"), el("span", {}, view.seconds(data.timeline.seconds))));
  };

  // A line under the critical path.
  const underline = (track, critical, row, x) => {
    const y = TOP + row * ROW + ROW - 3;
    const parts = [];
    for (const [number, , begins, ends] of track.moments) {
      if (!critical.has(number) || ends < state.from || begins > state.to) continue;
      const [x1, x2] = [Math.max(LEFT, x(begins)), Math.min(LEFT + WIDTH, x(ends))];
      const last = parts[parts.length - 1];
      if (last && x1 - last[1] < 0.5) last[1] = x2;
      else parts.push([x1, x2]);
    }
    return svg("path", { class: "critical", d: parts.map(([x1, x2]) => `M${x1} ${y}H${x2}`).join("") || "M0 0" });
  };

  const measured = (data, track) =>
    track.events.map(([name, place, begins, duration, kind]) => {
      const told = `${data.text(name)}\n${data.text(place)}\n${view.seconds(duration / 1e9)}`;
      return { kind, begins, ends: begins + duration, name: data.text(name).replace(/ ->.*$/, "").replace("stablehlo.", ""), text: told, attributes: { onclick: () => selectPlace(data, data.text(place)) } };
    });
  const selectPlace = (data, place) => {
    const op = data.ops.find((each) => data.place(each.place) === place);
    if (op) view.select({ op: op.id });
  };

  const zoom = (factor, at) => {
    const all = range(view.data);
    const width = Math.min(all, Math.max(1, (state.to - state.from) * factor));
    const from = Math.max(0, Math.min(all - width, at - (at - state.from) * (width / (state.to - state.from))));
    Object.assign(state, { from, to: from + width });
    redraw();
  };
  const move = (part) => {
    const all = range(view.data);
    const width = state.to - state.from;
    const from = Math.max(0, Math.min(all - width, state.from + part * width));
    Object.assign(state, { from, to: from + width });
    redraw();
  };
  const redraw = () => view.clear(document.getElementById("time-picture"), picture(view.data));

  const picture = (data) => {
    const x = (at) => LEFT + (WIDTH * (at - state.from)) / (state.to - state.from);
    const rows = [];
    const names = [];
    let row = 0;
    const add = (name, title, moments) => {
      names.push(svg("text", { x: LEFT - 8, y: TOP + row * ROW + ROW / 2 + 2, "text-anchor": "end", class: "small" }, name, svg("title", {}, title)));
      rows.push(...bars(moments, state, x, TOP + row * ROW + 3, ROW - 10));
      row++;
    };
    const critical = new Set((data.timeline ? data.timeline.critical : []).map(([unit]) => unit));
    for (const track of data.timeline ? data.timeline.tracks : []) {
      rows.push(underline(track, critical, row, x));
      add(trackName(track), `predicted, ranks ${view.ranks(track.ranks)}`, predicted(data, track));
    }
    for (const track of data.measured ? data.measured.tracks : []) add(view.shorten(track.name, 18), data.measured.what, measured(data, track));
    const step = 10 ** Math.floor(Math.log10((state.to - state.from) / 4));
    const marks = [];
    for (let at = Math.ceil(state.from / step) * step; at <= state.to; at += step * ((state.to - state.from) / step > 16 ? 5 : 1))
      marks.push(svg("line", { x1: x(at), x2: x(at), y1: TOP - 4, y2: TOP + row * ROW, class: "rule" }), svg("text", { x: x(at), y: TOP - 8, "text-anchor": "middle", class: "small" }, view.seconds(at / 1e9)));
    marks.push(svg("text", { x: LEFT - 18, y: TOP - 8, "text-anchor": "end", class: "small axis" }, "time since its start"));
    const drawing = view.picture("The step over time", LEFT + WIDTH + 20, TOP + row * ROW + 12, marks, names, rows);
    const area = drawing.querySelector("svg");
    const time = (event) => {
      const place = area.getBoundingClientRect();
      const at = ((event.clientX - place.left) * (LEFT + WIDTH + 20)) / place.width;
      return state.from + ((at - LEFT) / WIDTH) * (state.to - state.from);
    };
    area.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event));
    }, { passive: false });
    let grabbed = null;
    area.addEventListener("pointerdown", (event) => (grabbed = { at: time(event), from: state.from }));
    area.addEventListener("pointerup", (event) => {
      if (!grabbed) return;
      const part = (grabbed.at - time(event)) / (state.to - state.from);
      grabbed = null;
      if (Math.abs(part) > 0.01) move(part);
    });
    return drawing;
  };

  const shares = (data) => {
    const { critical, seconds } = data.timeline;
    const sums = new Map();
    for (const [unit, took] of critical) sums.set(unit, (sums.get(unit) || 0) + took);
    const ordered = [...sums].sort((a, b) => b[1] - a[1]);
    return el(
      "table", { class: "rows" }, el("caption", {}, "critical path"),
      el("thead", {}, el("tr", {}, ["share", "time", "unit", "place"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ordered.slice(0, 60).map(([number, took]) => {
        const unit = data.units[number];
        const op = unit.ops.length ? unit.ops[unit.ops.length - 1] : -1;
        return el("tr", op >= 0 ? view.selectable({ class: unit.ops.includes(view.selection.op) ? "selected" : "" }, { op }) : {}, el("td", { class: "number" }, view.share(took, seconds)), el("td", { class: "number" }, view.seconds(took)), el("td", {}, view.shorten(unit.title, 110), view.inTurns(unit.turns)), el("td", { title: unit.place }, view.shorten(view.near(unit.place), 60)));
      })),
    );
  };

  const totals = (data) => {
    const { prediction } = data;
    const rows = [["a step", prediction.seconds], ["computing", prediction.computing], ["communicating", prediction.communicating], ["waiting for others", prediction.waiting]];
    if (prediction.hidden) rows.push(["communication hidden", prediction.hidden]);
    return el("table", { class: "facts" }, rows.map(([name, seconds], at) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { "data-seconds": seconds }, view.seconds(seconds), at ? ` (${view.share(seconds, prediction.seconds)})` : ""))));
  };

  // The colours that the data has.
  const KINDS = { compute: "computing", collective: "communicating", start: "asynchronous communication", wait: "waiting for others", measured: "measured" };
  const kindsOf = (data) => {
    const found = new Set(data.timeline ? data.units.map((unit) => unit.what) : []);
    if (data.prediction && data.prediction.waiting) found.add("wait");
    for (const track of data.measured ? data.measured.tracks : []) for (const event of track.events) found.add(event[4]);
    return Object.entries(KINDS).filter(([kind]) => found.has(kind));
  };
  view.timeLegend = (data) => el("p", { class: "legend" }, kindsOf(data).map(([kind, text]) => [el("i", { style: `background:${COLOURS[kind]}` }), `${text} `]));
  const legend = (data) => {
    const repeated = data.units.some((unit) => unit.turns > 1) && el("span", {}, "; what a loop runs is drawn with all its turns together");
    return view.fill(view.timeLegend(data), {}, [data.timeline && [el("i", { class: "underline" }), "critical path"], repeated]);
  };

  const panel = {
    id: "time",
    title: "Time",
    draw(node) {
      const { data } = view;
      if (!data.timeline && !data.measured) {
        view.clear(node, el("h2", {}, "Time"), el("p", { class: "note" }, "There is no prediction of this program and no trace of a run."));
        return;
      }
      if (!state.to) Object.assign(state, { from: 0, to: data.span });
      const button = (text, name, action) => el("button", { title: name, "aria-label": name, onclick: action }, text);
      const sampled = data.timeline && data.timeline.looked < data.grid.size && el("p", { class: "note" }, `${data.timeline.looked} of ${data.grid.size.toLocaleString("en")} processes were looked at, evenly from the first to the last.`);
      const more = data.timeline && data.timeline.kinds > data.timeline.tracks.length && el("p", { class: "note" }, `${data.timeline.tracks.length} of ${data.timeline.kinds} kinds of processes are drawn.`);
      const cut = data.measured && data.measured.left > 0 && el("p", { class: "note" }, `The ${view.count(data.measured.left, "shortest event")} of the trace are left out.`);
      const what = data.measured && el("p", { class: "note" }, `${data.measured.what}. `, range(data) > data.span && `It goes on for ${view.seconds(range(data) / 1e9)}, beyond what is drawn first: “all” draws all of it.`);
      view.clear(
        node,
        el("h2", {}, `Time on ${data.grid.machine}`),
        el("div", { class: "bar", onkeydown: keys }, button("−", "zoom out", () => zoom(1.6, (state.from + state.to) / 2)), button("+", "zoom in", () => zoom(0.6, (state.from + state.to) / 2)), button("◂", "earlier", () => move(-0.3)), button("▸", "later", () => move(0.3)), button("all", "all of the time", () => { Object.assign(state, { from: 0, to: range(data) }); redraw(); }), data.measured && data.timeline && button("predicted", "as long as is predicted", () => { Object.assign(state, { from: 0, to: data.timeline.seconds * 1e9 }); redraw(); }), legend(data)),
        sampled, more, cut, what,
        el("div", { id: "time-picture", onkeydown: keys }, picture(data)),
        el("div", { class: "columns" }, data.timeline && shares(data), data.prediction && totals(data)),
      );
    },
    selected() {
      panel.draw(view.node("time"));
    },
    reset() {
      state.to = 0;
    },
  };
  const keys = (event) => {
    const actions = { "+": () => zoom(0.6, (state.from + state.to) / 2), "-": () => zoom(1.6, (state.from + state.to) / 2), ArrowLeft: () => move(-0.3), ArrowRight: () => move(0.3) };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
    const area = document.querySelector("#time-picture .scroll");
    if (area && event.currentTarget.id === "time-picture") area.focus();
  };
  view.panels.push(panel);
})();
