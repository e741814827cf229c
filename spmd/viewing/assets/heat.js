// An array of many elements as a heat map, and those around a corner that is moved (drag, arrows) as numbers.
"use strict";

(() => {
  const { el } = view;
  const [SIDE, MOST_PIXELS] = [8, 240];
  const NOT_A_NUMBER = [204, 51, 153];
  // The corner, [row, column], that all maps of the page share, and what draws it in each that is shown.
  const state = { corner: [0, 0], maps: [] };

  view.clearHeats = () => (state.maps = []);
  const moveTo = (row, column) => {
    state.corner = [Math.max(0, row), Math.max(0, column)];
    state.maps.forEach((draw) => draw());
  };

  const decoded = (entry) => {
    if (!entry[2]) {
      const text = atob(entry[1]);
      entry[2] = new Float32Array(Uint8Array.from(text, (letter) => letter.charCodeAt(0)).buffer);
    }
    return entry[2];
  };

  const paint = (canvas, elements, low, high) => {
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    elements.forEach((element, at) => {
      const colour = Number.isNaN(element) ? NOT_A_NUMBER : view.ramp(high > low ? (element - low) / (high - low) : 0.5).match(/\d+/g).map(Number);
      image.data.set([...colour, 255], 4 * at);
    });
    context.putImageData(image, 0, 0);
  };

  // `entry` is [shape, base64 of 32-bit floats in row-major order]; leading dimensions follow each other as rows.
  view.heatMap = (entry, name) => {
    const [shape] = entry;
    const elements = decoded(entry);
    const columns = shape.length > 1 ? shape[shape.length - 1] : Math.ceil(Math.sqrt(elements.length));
    const rows = Math.ceil(elements.length / columns);
    const finite = elements.filter(Number.isFinite);
    const [low, high] = [finite.reduce((a, b) => Math.min(a, b), Infinity), finite.reduce((a, b) => Math.max(a, b), -Infinity)];
    const canvas = el("canvas", { width: columns, height: rows });
    paint(canvas, elements.map((each) => (each === Infinity ? high : each === -Infinity ? low : each)), low, high);
    const scale = Math.min(12, MOST_PIXELS / Math.max(rows, columns));
    const [width, height] = [Math.max(8, columns * scale), Math.max(8, rows * scale)];
    canvas.style.cssText = `width:${width}px;height:${height}px`;
    const mark = el("i", {});
    const table = el("table", { class: "elements" });
    const shown = () => [Math.min(state.corner[0], Math.max(0, rows - SIDE)), Math.min(state.corner[1], Math.max(0, columns - SIDE))];
    const draw = () => {
      const [row, column] = shown();
      mark.style.cssText = `left:${(column / columns) * width}px;top:${(row / rows) * height}px;width:${(Math.min(SIDE, columns) / columns) * width}px;height:${(Math.min(SIDE, rows) / rows) * height}px`;
      const across = Array.from({ length: Math.min(SIDE, columns) }, (_, at) => column + at);
      const down = Array.from({ length: Math.min(SIDE, rows) }, (_, at) => row + at);
      view.clear(table, el("tr", {}, el("th", {}), across.map((at) => el("th", { scope: "col" }, at))), down.map((at) => el("tr", {}, el("th", { scope: "row" }, at), across.map((to) => el("td", {}, at * columns + to < elements.length ? Number(elements[at * columns + to].toPrecision(3)) : "")))));
    };
    const drag = (event) => {
      if (event.type === "pointermove" && !event.buttons) return;
      const place = canvas.getBoundingClientRect();
      moveTo(Math.floor(((event.clientY - place.top) / place.height) * rows - SIDE / 2), Math.floor(((event.clientX - place.left) / place.width) * columns - SIDE / 2));
    };
    const keys = (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const [row, column] = shown();
      moveTo(row + step[0] * (event.shiftKey ? SIDE : 1), column + step[1] * (event.shiftKey ? SIDE : 1));
    };
    draw();
    state.maps.push(draw);
    return el("div", { class: "heatmap" }, el("div", {}, el("div", { class: "map", tabindex: 0, role: "img", "aria-label": `${name}: ${shape.join("×")} as a heat map; arrows move the corner`, onkeydown: keys, onpointerdown: drag, onpointermove: drag }, canvas, mark), el("p", { class: "legend" }, finite.length ? view.scale(Number(low.toPrecision(3)), Number(high.toPrecision(3)), true) : "no finite elements")), table);
  };
})();
