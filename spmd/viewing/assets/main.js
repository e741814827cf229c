// The page: its title, the panels as tabs, the keys, and the theme.
"use strict";

(() => {
  const { el } = view;
  view.node = (id) => document.getElementById(`panel-${id}`);

  const order = ["compare", "overview", "grid", "arrays", "program", "communication", "memory", "time", "values"];
  const present = () => view.panels.filter((panel) => !panel.present || panel.present()).sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id));

  view.show = (id) => {
    if (view.open !== id) scrollTo(0, 0);
    view.open = id;
    document.getElementById("details").hidden = id === "overview";
    for (const panel of present()) {
      const open = panel.id === id;
      const tab = document.getElementById(`tab-${panel.id}`);
      tab.setAttribute("aria-selected", open);
      tab.tabIndex = open ? 0 : -1;
      view.node(panel.id).hidden = !open;
      if (open && (panel.stale || !panel.drawn)) {
        panel.draw(view.node(id));
        if (panel.selected && panel.stale) panel.selected();
        panel.drawn = true;
        panel.stale = false;
      }
    }
  };

  const tabs = () =>
    el("div", { role: "tablist", "aria-label": "panels", onkeydown: turn }, present().map((panel, at) =>
      el("button", { role: "tab", id: `tab-${panel.id}`, "aria-controls": `panel-${panel.id}`, "aria-selected": "false", title: `key ${at + 1}`, onclick: () => view.show(panel.id) }, panel.title),
    ));
  const turn = (event) => {
    const ids = present().map((panel) => panel.id);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    view.show(ids[(ids.indexOf(view.open) + step + ids.length) % ids.length]);
    document.getElementById(`tab-${view.open}`).focus();
  };

  const summary = (data) => {
    const told = [view.count(data.grid.size, "process", "processes"), view.countOps(data, data.ops.map((op) => op.id)), view.count(data.collectives.length, "collective")];
    if (data.prediction) told.push(`${view.seconds(data.prediction.seconds)} a step expected`);
    if (data.memory) told.push(`${view.bytes(data.memory.footprint.arguments + data.memory.footprint.results + data.memory.footprint.temporaries)} a process`);
    return told.join(" · ");
  };

  const switcher = () =>
    view.documents.length > 1 &&
    el("div", { class: "switch", role: "group", "aria-label": "program shown" }, view.documents.map((data, number) =>
      el("button", { "aria-pressed": view.number === number, onclick: () => choose(number) }, `${"AB"[number]}: ${view.shorten(data.title, 40)}`),
    ));
  const choose = (number) => {
    view.use(number);
    view.selection = { op: -1, rank: -1, value: -1, collective: -1 };
    for (const panel of view.panels) {
      panel.drawn = false;
      if (panel.reset) panel.reset();
    }
    build(view.open);
  };

  const theme = () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  };

  const build = (open) => {
    const { data } = view;
    document.title = `${data.title} – spmd`;
    const notes = data.notes.length > 0 && el("details", { class: "notes" }, el("summary", {}, view.count(data.notes.length, "note")), el("ul", {}, data.notes.map((note) => el("li", {}, note))));
    view.clear(
      document.getElementById("page"),
      el("header", {}, el("h1", {}, view.shorten(data.title, 120)), switcher(), el("p", {}, summary(data)), notes, el("div", { class: "corner" }, el("button", { onclick: theme, "aria-label": "light or dark" }, "◐"))),
      tabs(),
      el("div", { class: "body" }, el("main", {}, present().map((panel) => el("section", { id: `panel-${panel.id}`, role: "tabpanel", "aria-labelledby": `tab-${panel.id}`, hidden: true }))), el("aside", { id: "details", "aria-label": "selected", "aria-live": "polite" })),
    );
    view.details.draw();
    view.show(open || present()[0].id);
  };

  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = Number(event.key) - 1;
    const ids = present().map((panel) => panel.id);
    if (ids[at]) {
      view.show(ids[at]);
      document.getElementById(`tab-${ids[at]}`).focus();
    }
    if (event.key === "Escape") view.select({ op: -1, rank: -1, value: -1, collective: -1 });
  });

  view.use(0);
  const wanted = location.hash.slice(1);
  build(present().some((panel) => panel.id === wanted) ? wanted : null);
})();
