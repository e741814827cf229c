// A drawing that is fitted to the window, and can be zoomed (wheel, + and -), moved (drag, arrows) and fitted again (0).
"use strict";

// The pixels that a drawing in a panel may take.
view.room = (node, taken) => [Math.max(280, node.clientWidth), Math.max(300, innerHeight - node.getBoundingClientRect().top - scrollY - taken)];

// `state.box` holds what is in view, [x, y, width, height] in the drawing's units, or null: all of it.
view.zoomable = (name, [width, height], [wide, high], state, ...children) => {
  const { el } = view;
  const drawing = view.drawing(name, width, height, ...children);
  drawing.dataset.whole = `0 0 ${width} ${height}`;
  view.fill(drawing, { width: wide, height: high });
  const scale = Math.min(1.2, wide / width, high / height);
  const whole = [(width - wide / scale) / 2, 0, wide / scale, high / scale];
  const set = (box) => {
    state.box = box;
    drawing.setAttribute("viewBox", (box || whole).join(" "));
  };
  set(state.box);
  const zoom = (factor, right = 0.5, down = 0.5) => {
    const [x, y, w, h] = state.box || whole;
    const by = Math.max(factor, (0.1 * wide) / w) * Math.min(1, (3 * whole[2]) / (w * factor));
    set([x + right * w * (1 - by), y + down * h * (1 - by), w * by, h * by]);
  };
  const move = (right, down) => {
    const [x, y, w, h] = state.box || whole;
    set([x + right * w, y + down * h, w, h]);
  };
  const actions = { "+": () => zoom(0.8), "-": () => zoom(1.25), 0: () => set(null), ArrowLeft: () => move(-0.1, 0), ArrowRight: () => move(0.1, 0), ArrowUp: () => move(0, -0.1), ArrowDown: () => move(0, 0.1) };
  const keys = (event) => {
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  };
  drawing.addEventListener("wheel", (event) => {
    event.preventDefault();
    const place = drawing.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, (event.clientX - place.left) / place.width, (event.clientY - place.top) / place.height);
  }, { passive: false });
  let held = null;
  drawing.addEventListener("pointerdown", (event) => (held = { x: event.clientX, y: event.clientY, moved: false, box: state.box || whole }));
  drawing.addEventListener("pointermove", (event) => {
    if (!held || !event.buttons) return;
    const [right, down] = [event.clientX - held.x, event.clientY - held.y];
    if (!held.moved && Math.hypot(right, down) < 4) return;
    held.moved = true;
    const place = drawing.getBoundingClientRect();
    const [x, y, w, h] = held.box;
    set([x - (right * w) / place.width, y - (down * h) / place.height, w, h]);
  });
  // What was moved is not clicked, too.
  drawing.addEventListener("click", (event) => { if (held && held.moved) event.stopPropagation(); held = null; }, true);
  const button = (text, title, key) => el("button", { class: "tool", title: `${title} (key ${key})`, "aria-label": title, onclick: actions[key] }, text);
  const save = el("button", { class: "save", title: "Save this picture as SVG", onclick: () => view.save(drawing, name) }, "save SVG");
  return el("figure", { class: "zoomable" }, el("div", { class: "frame", tabindex: 0, "aria-label": name, onkeydown: keys }, drawing), el("figcaption", {}, button("−", "zoom out", "-"), " ", button("+", "zoom in", "+"), " ", button("fit", "fit to the window", "0"), " ", save, el("small", {}, " drag to move, wheel to zoom")));
};
