// What people do to timelines, and the start of it all.

/** The time axis and choices that all timelines of the page share. */
class TimelinePage {
  constructor(sections) {
    this.hidden = new Set();
    this.colouring = "kind";
    this.arrows = false;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    document.body.append(this.tip);
    this.views = [];
    this.views = sections.map((section) => new TimelineView(section, this));
    this.span = Math.max(...this.views.map((view) => view.data.span));
    this.begin = 0;
    this.end = this.span;
    this.addToolbar(sections[0]);
    this.draw();
    for (const view of this.views) {
      Object.assign(view.section.dataset, { intervals: view.data.count, links: view.data.links.length, ready: "true" });
    }
    new ResizeObserver(() => this.redraw()).observe(document.body);
  }

  draw() { for (const view of this.views) view.draw(); }

  /** Draws at the next frame, however often it was asked. */
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  show(begin, end) {
    const width = Math.min(Math.max(end - begin, this.span / 1e5), this.span);
    this.begin = Math.min(Math.max(begin, 0), this.span - width);
    this.end = this.begin + width;
    this.redraw();
  }
  zoom(factor, centre = (this.begin + this.end) / 2) {
    this.show(centre - (centre - this.begin) * factor, centre + (this.end - centre) * factor);
  }
  move(share) {
    const by = (this.end - this.begin) * share;
    this.show(this.begin + by, this.end + by);
  }

  addToolbar(section) {
    const present = new Set(this.views.flatMap((view) => [...new Set(view.data.kind)].map((kind) => view.data.looks[kind].look)));
    const bar = document.createElement("div");
    bar.className = "toolbar";
    bar.innerHTML = `<button type="button" data-do="in" aria-label="Zoom in">+</button><button type="button" data-do="out" aria-label="Zoom out">−</button>
      <button type="button" data-do="all">Show all</button>
      <label>Colours <select><option value="kind">by kind</option><option value="microbatch">by microbatch</option></select></label>
      <label><input type="checkbox"> Arrows</label>
      <div class="legend" role="group" aria-label="Kinds of action; press to hide">${kLegend.filter(([look]) => present.has(look))
        .map(([look, words]) => `<button type="button" aria-pressed="true" data-look="${look}"><span class="swatch k-${look}"></span>${words}</button>`).join("")}</div>
      <span class="hint">Drag to move, Ctrl + wheel to zoom; drag above the axis to choose a span; double-click an action to fill the view with it.</span>`;
    const doing = { in: () => this.zoom(0.5), out: () => this.zoom(2), all: () => this.show(0, this.span) };
    bar.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      doing[button.dataset.do]?.();
      const look = button.dataset.look;
      if (!look) return;
      if (!this.hidden.delete(look)) this.hidden.add(look);
      button.setAttribute("aria-pressed", String(!this.hidden.has(look)));
      this.redraw();
    });
    bar.querySelector("select").addEventListener("change", (event) => { this.colouring = event.target.value; this.redraw(); });
    bar.querySelector("input").addEventListener("change", (event) => { this.arrows = event.target.checked; this.redraw(); });
    section.querySelector(".view").before(bar);
  }

  showTip(html, x, y) {
    this.tip.innerHTML = html;
    this.tip.hidden = false;
    const { width, height } = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.max(4, x + 14 + width > innerWidth ? x - 14 - width : x + 14)}px`;
    this.tip.style.top = `${Math.max(4, y + 14 + height > innerHeight ? y - 10 - height : y + 14)}px`;
  }
}

function tipOf(view, i) {
  const facts = view.data.facts(i).map(([what, value]) => `<dt>${what}</dt><dd>${escapeText(value)}</dd>`).join("");
  return `<b>${escapeText(view.data.name(i))}</b><dl>${facts}</dl>`;
}

function listenToTimeline(view) {
  const { box, page } = view;
  const place = (event) => {
    const edge = box.getBoundingClientRect();
    return { x: event.clientX - edge.left, lane: Math.floor((event.clientY - edge.top + box.scrollTop) / view.laneHeight) };
  };
  const intervalAt = (event) => {
    const { x, lane } = place(event);
    if (lane < 0 || lane >= view.data.lanes.length || x < view.labelWidth) return -1;
    return view.data.at(lane, view.time(x), (3 / view.plotWidth) * (page.end - page.begin));
  };
  let drag = null;
  box.addEventListener("pointermove", (event) => {
    if (drag) {
      const by = ((drag.x - event.clientX) / view.plotWidth) * (page.end - page.begin);
      drag.moved ||= Math.abs(drag.x - event.clientX) > 3;
      if (drag.moved) { page.show(page.begin + by, page.end + by); drag.x = event.clientX; box.classList.add("dragging"); }
      return;
    }
    const found = intervalAt(event);
    if (found !== view.pointed) { view.pointed = found; view.drawOver(); }
    if (found >= 0) page.showTip(tipOf(view, found), event.clientX, event.clientY); else page.tip.hidden = true;
  });
  const leave = () => { page.tip.hidden = true; if (view.pointed >= 0) { view.pointed = -1; view.drawOver(); } };
  box.addEventListener("pointerleave", leave);
  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, moved: false };
    box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) { view.picked = intervalAt(event); view.drawOver(); }
    drag = null;
    box.classList.remove("dragging");
  });
  box.addEventListener("pointercancel", () => { drag = null; box.classList.remove("dragging"); });
  box.addEventListener("dblclick", (event) => { view.picked = intervalAt(event); fillWith(view); });
  box.addEventListener("scroll", () => page.redraw());
  box.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (event.ctrlKey || event.metaKey) page.zoom(1.0016 ** event.deltaY, view.time(place(event).x));
    else if (sideways) page.move(sideways / view.plotWidth);
    else return;  // The page scrolls.
    event.preventDefault();
  }, { passive: false });
  box.addEventListener("keydown", (event) => { if (pressed(view, event)) event.preventDefault(); });
  listenToOverview(view);
}

function listenToOverview(view) {
  const { overview, page } = view;
  const time = (event) => ((event.clientX - overview.getBoundingClientRect().left - view.labelWidth) / view.plotWidth) * page.span;
  let from = null;
  overview.addEventListener("pointerdown", (event) => { from = { time: time(event), x: event.clientX }; overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", (event) => {
    if (from && Math.abs(event.clientX - from.x) > 3) page.show(Math.min(from.time, time(event)), Math.max(from.time, time(event)));
  });
  overview.addEventListener("pointerup", (event) => {
    // A click moves the window there.
    if (from && Math.abs(event.clientX - from.x) <= 3) page.show(from.time - (page.end - page.begin) / 2, from.time + (page.end - page.begin) / 2);
    from = null;
  });
}

function fillWith(view) {
  if (view.picked < 0) return;
  const [begin, end] = [view.data.begin[view.picked], view.data.end[view.picked]];
  const room = Math.max((end - begin) * 0.6, view.page.span / 1e4);
  view.page.show(begin - room, end + room);
}

/** Goes to the interval `by` further in its lane, or to the same time `lanes` further down. */
function pick(view, by, lanes) {
  const { data, page } = view;
  if (data.count === 0) return;
  if (view.picked < 0) {
    view.picked = [...data.lanes.keys()].map((lane) => data.firstAfter(lane, page.begin)).find((i, lane) => i < data.first[lane + 1]) ?? -1;
  } else if (by) {
    const lane = data.lane[view.picked];
    view.picked = Math.min(Math.max(view.picked + by, data.first[lane]), data.first[lane + 1] - 1);
  } else {
    const middle = (data.begin[view.picked] + data.end[view.picked]) / 2;
    for (let lane = data.lane[view.picked] + lanes; lane >= 0 && lane < data.lanes.length; lane += lanes) {
      if (data.first[lane] === data.first[lane + 1]) continue;
      view.picked = Math.min(data.firstAfter(lane, middle), data.first[lane + 1] - 1);
      break;
    }
  }
  if (view.picked < 0) return;
  const [begin, end] = [data.begin[view.picked], data.end[view.picked]];
  const width = page.end - page.begin;
  if (end < page.begin || begin > page.end) page.show((begin + end - width) / 2, (begin + end + width) / 2);
  const top = data.lane[view.picked] * view.laneHeight;
  if (view.box.classList.contains("tall") && (top < view.box.scrollTop || top + view.laneHeight > view.box.scrollTop + view.box.clientHeight)) {
    view.box.scrollTop = top - view.box.clientHeight / 2;
  }
  view.drawOver();
}

function pressed(view, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const { page } = view;
  const keys = {
    "+": () => page.zoom(0.5), "=": () => page.zoom(0.5), "-": () => page.zoom(2), _: () => page.zoom(2),
    w: () => page.zoom(0.5), s: () => page.zoom(2), a: () => page.move(-0.2), d: () => page.move(0.2),
    0: () => page.show(0, page.span), Home: () => page.show(0, page.span),
    ArrowLeft: () => (event.shiftKey ? page.move(-0.2) : pick(view, -1, 0)),
    ArrowRight: () => (event.shiftKey ? page.move(0.2) : pick(view, 1, 0)),
    ArrowUp: () => pick(view, 0, -1), ArrowDown: () => pick(view, 0, 1),
    Enter: () => fillWith(view), Escape: () => { view.picked = -1; view.drawOver(); },
  };
  if (!keys[event.key]) return false;
  keys[event.key]();
  return true;
}

{
  const sections = [...document.querySelectorAll("section.timeline")];
  if (sections.length > 0) globalThis.troupeTimelines = new TimelinePage(sections);
}
