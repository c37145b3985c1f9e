// Draws timelines and answers mouse, touch and keys. All timelines of a page share one time axis.
//
// Only what is in view is drawn: a path per kind of action, labels where they fit, intervals that
// would fall on the same pixel once.

const kLabelsMax = 1500;
const kArrowsMax = 1500;

/** Positions of axis labels: steps of 1, 2 or 5. */
function axisTicks(begin, end, count) {
  const rough = (end - begin) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough) ?? 10 * power;
  const ticks = [];
  for (let t = Math.ceil(begin / step) * step; t <= end + step * 1e-6; t += step) ticks.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return ticks;
}

/** Dark blue to yellow: the order of microbatches as a ramp that every colour vision can read. */
function ramp(share) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const at = Math.min(share, 0.9999) * (stops.length - 1);
  const low = stops[Math.floor(at)], high = stops[Math.floor(at) + 1];
  return `rgb(${low.map((c, i) => Math.round(c + (high[i] - c) * (at % 1))).join(",")})`;
}

class TimelineView {
  constructor(section, page) {
    this.section = section;
    this.page = page;
    this.data = new TimelineData(JSON.parse(section.querySelector("script[type='application/json']").textContent));
    this.pointed = -1;
    this.picked = -1;
    const frame = section.querySelector(".view");
    frame.innerHTML = `<div class="frame"><div class="overview"></div><div class="axis"></div>
      <div class="lanes" tabindex="0" role="application" aria-roledescription="timeline"
        aria-label="${escapeText(this.data.title)}. Arrow keys go from action to action, plus and minus zoom, zero shows all."></div></div>
      <p class="readout" aria-live="polite"></p>`;
    [this.overview, this.axis, this.box] = [".overview", ".axis", ".lanes"].map((name) => frame.querySelector(name));
    this.readout = frame.querySelector(".readout");
    const count = this.data.lanes.length;
    this.laneHeight = count <= 8 ? 44 : count <= 16 ? 32 : count <= 32 ? 22 : count <= 80 ? 16 : 13;
    if (count > 80) this.box.classList.add("tall");
    this.addActionTable();
    listenToTimeline(this);
  }

  get labelWidth() { return this.width >= 900 ? 210 : this.width >= 560 ? 140 : 92; }
  x(time) {
    const { begin, end } = this.page;
    return this.labelWidth + ((time - begin) / (end - begin)) * this.plotWidth;
  }
  time(x) {
    const { begin, end } = this.page;
    return begin + ((x - this.labelWidth) / this.plotWidth) * (end - begin);
  }

  draw() {
    this.width = this.box.clientWidth || 800;
    this.plotWidth = Math.max(this.width - this.labelWidth - 10, 50);
    this.drawOverview();
    this.drawAxis();
    const height = this.laneHeight * this.data.lanes.length;
    const top = this.box.classList.contains("tall") ? this.box.scrollTop : 0;
    const bottom = this.box.classList.contains("tall") ? top + this.box.clientHeight : height;
    const lanes = [Math.floor(top / this.laneHeight), Math.min(Math.ceil(bottom / this.laneHeight) + 1, this.data.lanes.length)];
    const id = this.section.id;
    this.box.innerHTML = `<svg height="${height}" role="img" aria-hidden="true"><defs>
      <clipPath id="${id}-plot"><rect x="${this.labelWidth}" width="${this.plotWidth}" height="${height}"/></clipPath>
      <clipPath id="${id}-labels"><rect width="${this.labelWidth - 8}" height="${height}"/></clipPath>
      <marker id="arrowhead" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>
      ${this.bands(...lanes)}<g clip-path="url(#${id}-labels)">${this.laneLabels(...lanes)}</g>
      <g clip-path="url(#${id}-plot)">${this.intervals(...lanes)}${this.marks(height)}<g class="over"></g></g></svg>`;
    this.drawOver();
  }

  bands(from, to) {
    let out = "";
    for (let lane = from; lane < to; ++lane) {
      if (lane % 2 === 0) out += `<rect class="band" y="${lane * this.laneHeight}" width="${this.width}" height="${this.laneHeight}"/>`;
    }
    for (const tick of this.ticks) out += `<path class="gridline" d="M${this.x(tick)} 0V${this.laneHeight * this.data.lanes.length}"/>`;
    return out;
  }

  laneLabels(from, to) {
    let out = "";
    const oneDeviceEach = this.data.lanes.every((lane) => lane.device === 0);
    for (let l = from; l < to; ++l) {
      const lane = this.data.lanes[l];
      const y = l * this.laneHeight, middle = y + this.laneHeight / 2;
      const full = `<title>${escapeText(`${lane.name}: ${lane.stages || "no stage"}`)}</title>`;
      if (this.laneHeight >= 32) {
        out += `<text x="8" y="${middle - 3}">${escapeText(this.labelWidth > 150 ? lane.name : `node ${lane.node}.${lane.device}`)}${full}</text>` +
          `<text class="muted" x="8" y="${middle + 11}">${escapeText(lane.stages)}${full}</text>`;
      } else {
        const place = lane.node < 0 ? lane.device : oneDeviceEach ? lane.node : `${lane.node}.${lane.device}`;
        const words = this.labelWidth > 150 ? `node ${place}` : `${place}`;
        out += `<text x="8" y="${middle + 4}">${escapeText(words)}<tspan class="muted" dx="6" fill="var(--muted)">${escapeText(lane.stages)}</tspan>${full}</text>`;
      }
    }
    return out;
  }

  /** Top and height of an interval of this look in its lane. */
  shape(lane, look) {
    const pad = this.laneHeight >= 22 ? 3 : 1.5;
    const y = lane * this.laneHeight + pad, height = this.laneHeight - 2 * pad;
    if (look === "wait") return [y + height * 0.4, height * 0.2];
    if (look === "transfer") return [y + height * 0.6, height * 0.4];
    return [y, height];
  }

  fillOf(i, look) {
    if (this.page.colouring !== "microbatch" || !kComputing.has(look) || this.data.microbatch[i] < 0) return `class="k-${look}"`;
    return `fill="${ramp(this.data.microbatches > 1 ? this.data.microbatch[i] / (this.data.microbatches - 1) : 0)}"`;
  }

  intervals(from, to) {
    const { data, page } = this;
    const paths = new Map(), labels = [];
    const right = this.labelWidth + this.plotWidth;
    let drawn = 0;
    for (let lane = from; lane < to; ++lane) {
      const reached = {};
      for (let i = data.firstAfter(lane, page.begin - 1e-9); i < data.first[lane + 1] && data.begin[i] <= page.end; ++i) {
        const look = data.look(i);
        if (page.hidden.has(look)) continue;
        ++drawn;
        const x0 = Math.max(this.x(data.begin[i]), this.labelWidth - 2);
        const x1 = Math.min(Math.max(this.x(data.end[i]), x0 + 0.7), right + 2);
        const fill = this.fillOf(i, look);
        // Falls on pixels that this fill has in this lane already.
        if (x1 <= (reached[fill] ?? -1)) continue;
        reached[fill] = Math.ceil(x1 * 2) / 2;
        const [y, height] = this.shape(lane, look);
        const width = x1 - x0 > 3 ? x1 - x0 - 0.75 : x1 - x0;
        const box = `M${x0.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h-${width.toFixed(1)}z`;
        const list = paths.get(fill);
        if (list) list.push(box); else paths.set(fill, [box]);
        const letter = data.looks[data.kind[i]].letter;
        if (letter && x1 - x0 >= 16 && this.laneHeight >= 13) labels.push([x1 - x0, i, (x0 + x1) / 2, y + height / 2 + 3.8, letter + data.batchLabel(i), look]);
      }
    }
    if (labels.length > kLabelsMax) labels.sort((a, b) => b[0] - a[0]).length = kLabelsMax;
    this.section.dataset.drawn = drawn;
    let out = "";
    for (const [fill, boxes] of paths) out += `<path ${fill} d="${boxes.join("")}"/>`;
    for (const [room, i, x, y, words, look] of labels) {
      if (words.length * 6.6 + 4 > room) continue;
      const light = page.colouring === "microbatch" && kComputing.has(look) && data.microbatch[i] * 2 < data.microbatches;
      out += `<text class="in ${look}" x="${x.toFixed(1)}" y="${y.toFixed(1)}"${page.colouring === "microbatch" && kComputing.has(look) ? ` style="fill:${light ? "#fff" : "#10151a"}"` : ""}>${words}</text>`;
    }
    return out;
  }

  arrow(number, faint) {
    const { data } = this;
    const [from, to] = data.links[number];
    const middle = (i) => (data.lane[i] + 0.5) * this.laneHeight;
    const [x0, y0, x1, y1] = [this.x(data.end[from]), middle(from), this.x(data.end[to]), middle(to)];
    if (Math.max(x0, x1) < this.labelWidth || Math.min(x0, x1) > this.width) return "";
    const bend = Math.max(Math.abs(x1 - x0) * 0.4, 12);
    return `<path class="link${faint ? " faint" : ""}" marker-end="url(#arrowhead)" d="M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}"/>`;
  }

  /** What happened to the job: a line through all lanes; what was before the first action stands where that begins. */
  marks(height) {
    return this.data.marks.map(({ at, kind, name }) => {
      const x = this.x(Math.min(Math.max(at, 0), this.data.span)).toFixed(1);
      const words = at < 0 ? `${name}, ${formatMs(-at)} before` : name;
      return `<path class="mark m-${escapeText(kind)}" d="M${x} 0V${height}"><title>${escapeText(words)}</title></path>`;
    }).join("");
  }

  /** Arrows and outlines: what changes when the pointer moves. */
  drawOver() {
    const { data } = this;
    let out = "";
    this.tooManyArrows = false;
    if (this.page.arrows) {
      const seen = [];
      data.links.forEach(([from, to], number) => {
        if (data.end[to] >= this.page.begin && data.begin[from] <= this.page.end) seen.push(number);
      });
      this.tooManyArrows = seen.length > kArrowsMax;
      if (!this.tooManyArrows) out += seen.map((number) => this.arrow(number, true)).join("");
      this.section.dataset.arrows = this.tooManyArrows ? 0 : seen.length;
    }
    for (const [i, name] of [[this.pointed, "pointed"], [this.picked, "picked"]]) {
      if (i < 0) continue;
      const [y, height] = this.shape(data.lane[i], data.look(i));
      const x0 = this.x(data.begin[i]);
      out += `<rect class="${name}" x="${x0}" y="${y}" width="${Math.max(this.x(data.end[i]) - x0, 1)}" height="${height}" rx="1"/>`;
      out += data.arrowsOf(i).map((number) => this.arrow(number, false)).join("");
    }
    this.box.querySelector(".over").innerHTML = out;
    this.readout.textContent = this.picked >= 0
      ? [this.data.name(this.picked), ...data.facts(this.picked).map(([what, value]) => `${what} ${value}`)].join(", ")
      : this.tooManyArrows ? "Too many arrows to draw: zoom in to see them." : "";
  }

  drawAxis() {
    const { begin, end } = this.page;
    this.ticks = axisTicks(begin, end, this.plotWidth / 90);
    const largest = Math.max(Math.abs(end), 1e-6);
    const [scale, unit] = largest >= 20000 ? [1e-3, "s"] : largest < 1 ? [1e3, "µs"] : [1, "ms"];
    let out = `<text class="muted" x="8" y="15">${this.width >= 560 ? "device" : ""}</text>`;
    for (const tick of this.ticks) {
      const x = this.x(tick);
      if (x > this.width - 24) continue;
      out += `<path class="gridline" d="M${x} 16V22"/><text class="muted" x="${x}" y="13" text-anchor="middle">${Number((tick * scale).toPrecision(6))}</text>`;
    }
    out += `<text class="muted" x="${this.width - 6}" y="13" text-anchor="end">${unit}</text>`;
    this.axis.innerHTML = `<svg height="22" aria-hidden="true">${out}</svg>`;
  }

  /** The whole step: how many devices compute, and which part is in view. */
  drawOverview() {
    const height = 34, bins = Math.round(this.plotWidth / 2);
    const x = (time) => this.labelWidth + (time / this.page.span) * this.plotWidth;
    const busy = this.data.busy(bins);
    const step = (this.data.span / this.page.span) * this.plotWidth / bins;
    let area = `M${this.labelWidth} ${height}`;
    busy.forEach((share, bin) => {
      area += `V${(height - share * (height - 4)).toFixed(1)}H${(this.labelWidth + (bin + 1) * step).toFixed(1)}`;
    });
    this.overview.innerHTML = `<svg height="${height}" role="img" aria-label="Share of devices that compute, over time">
      <text class="muted" x="8" y="${height / 2 + 4}">${this.width >= 560 ? "computing" : "busy"}</text>
      <path class="busy" d="${area}V${height}z"/>
      <rect class="window" x="${x(this.page.begin)}" y="0.5" width="${Math.max(x(this.page.end) - x(this.page.begin), 2)}" height="${height - 1}"/></svg>`;
  }

  /** A table of one device's actions, made when somebody opens it. */
  addActionTable() {
    const details = document.createElement("details");
    details.innerHTML = `<summary>Actions of a device</summary><p><label>Device
      <select>${this.data.lanes.map((lane, l) => `<option value="${l}">${escapeText(`${lane.name} (${lane.stages})`)}</option>`).join("")}</select></label></p>
      <div class="scroll"><table><thead><tr><th scope="col">Action</th><th scope="col">Begin, ms</th><th scope="col">End, ms</th><th scope="col">Takes, ms</th><th scope="col">Bytes</th></tr></thead><tbody></tbody></table></div>`;
    const fill = () => {
      const lane = Number(details.querySelector("select").value);
      const { data } = this;
      let rows = "";
      for (let i = data.first[lane]; i < data.first[lane + 1]; ++i) {
        rows += `<tr><th scope="row">${escapeText(data.name(i))}</th><td>${data.begin[i].toFixed(3)}</td><td>${data.end[i].toFixed(3)}</td><td>${(data.end[i] - data.begin[i]).toFixed(3)}</td><td>${data.bytes[i] || ""}</td></tr>`;
      }
      details.querySelector("tbody").innerHTML = rows;
    };
    details.addEventListener("toggle", () => { if (details.open) fill(); });
    details.querySelector("select").addEventListener("change", fill);
    this.section.append(details);
  }
}

