"use strict";
// The data of one timeline, with what the view asks of it.

// How each kind of action looks and reads. Waiting is a thin bar and a transfer a low one, so that
// they are told apart without colours.
const kLooks = {
  forward: { look: "forward", letter: "F", words: "forward" },
  backward: { look: "backward", letter: "B", words: "backward" },
  backward_input: { look: "backward-input", letter: "I", words: "input gradient" },
  backward_weight: { look: "backward-weight", letter: "W", words: "weight gradient" },
  offload: { look: "offload", letter: "H", words: "activations to host memory" },
  fetch: { look: "offload", letter: "D", words: "activations from host memory" },
  send: { look: "transfer", letter: "", words: "send rows" },
  receive: { look: "wait", letter: "", words: "wait for rows" },
  send_gradient: { look: "transfer", letter: "", words: "send gradient" },
  receive_gradient: { look: "wait", letter: "", words: "wait for gradient" },
  send_content: { look: "transfer", letter: "", words: "send content" },
  receive_content: { look: "wait", letter: "", words: "wait for content" },
  reduce_send: { look: "transfer", letter: "", words: "send to the reduction" },
  reduce_partial: { look: "reduce", letter: "σ", words: "reduce over the node" },
  reduce: { look: "reduce", letter: "Σ", words: "reduce" },
  reduce_relay: { look: "wait", letter: "", words: "wait for reduced gradient and hand it on" },
  reduce_receive: { look: "wait", letter: "", words: "wait for reduced gradient" },
  commit: { look: "wait", letter: "", words: "wait for commit" },
  evict_parameters: { look: "offload", letter: "H", words: "parameters to host memory" },
  fetch_parameters: { look: "offload", letter: "D", words: "parameters from host memory" },
  fetch_state: { look: "offload", letter: "D", words: "moments from host memory" },
  offload_state: { look: "offload", letter: "H", words: "moments to host memory" },
  optimizer_step: { look: "optimizer", letter: "O", words: "optimizer step" },
};
const kLegend = [
  ["forward", "Forward"], ["backward", "Backward"],
  ["backward-input", "Input gradient"], ["backward-weight", "Weight gradient"],
  ["reduce", "Reduce"], ["optimizer", "Optimizer"], ["offload", "Host memory"], ["transfer", "Send"], ["wait", "Wait"],
];
const kComputing = new Set(["forward", "backward", "backward-input", "backward-weight"]);

const escapeText = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/** 12.34 ms, 3.2 s: four figures. */
function formatMs(ms) {
  const [value, unit] = ms >= 10000 ? [ms / 1000, "s"] : ms >= 0.1 || ms === 0 ? [ms, "ms"] : [ms * 1000, "µs"];
  return `${Number(value.toPrecision(4))} ${unit}`;
}

function formatBytes(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; ++unit; }
  return `${Number(bytes.toPrecision(4))} ${units[unit]}`;
}

class TimelineData {
  constructor(json) {
    Object.assign(this, json.intervals);
    this.title = json.title;
    this.lanes = json.lanes;
    this.stages = json.stages;
    this.links = json.links;
    this.marks = json.marks;
    this.span = Math.max(json.span_ms, 1e-6);
    this.count = this.lane.length;
    this.looks = json.kinds.map((kind) => kLooks[kind]);
    // Intervals stand by lane, then begin: those of lane l are [first[l], first[l + 1]).
    this.first = new Array(this.lanes.length + 1).fill(this.count);
    for (let i = this.count - 1; i >= 0; --i) this.first[this.lane[i]] = i;
    for (let l = this.lanes.length - 1; l >= 0; --l) this.first[l] = Math.min(this.first[l], this.first[l + 1]);
    this.linksOf = new Map();
    this.links.forEach((link, number) => {
      for (const end of link) {
        if (!this.linksOf.has(end)) this.linksOf.set(end, []);
        this.linksOf.get(end).push(number);
      }
    });
    this.microbatches = this.microbatch.reduce((most, m) => Math.max(most, m + 1), 0);
  }

  look(i) { return this.looks[this.kind[i]].look; }

  /** First interval of a lane that ends after `time`. */
  firstAfter(lane, time) {
    let low = this.first[lane], high = this.first[lane + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  /** The interval at `time`, or the nearest one within `tolerance` that is shorter than that. */
  at(lane, time, tolerance) {
    let found = -1, distance = Infinity;
    for (let i = this.firstAfter(lane, time - tolerance); i < this.first[lane + 1] && this.begin[i] <= time + tolerance; ++i) {
      const inside = this.begin[i] <= time && time < this.end[i];
      const short = this.end[i] - this.begin[i] < tolerance;
      if (!inside && !short) continue;
      const away = short ? Math.abs((this.begin[i] + this.end[i]) / 2 - time) : tolerance / 2;
      if (away < distance) { distance = away; found = i; }
    }
    return found;
  }

  /** 3, or 3.1 where a microbatch has parts. */
  batchLabel(i) {
    if (this.microbatch[i] < 0) return "";
    return this.part[i] > 0 ? `${this.microbatch[i]}.${this.part[i]}` : `${this.microbatch[i]}`;
  }

  name(i) {
    const stage = this.stage[i] >= 0 ? `${this.stages[this.stage[i]]} ` : "";
    const subject = this.subject[i] >= 0 ? ` ${this.subjects[this.subject[i]]}` : "";
    const batch = this.batchLabel(i);
    return `${stage}${this.looks[this.kind[i]].words}${subject}${batch ? `, microbatch ${batch}` : ""}`;
  }

  /** What a reader wants to know about an interval: pairs of words. */
  facts(i) {
    const lane = this.lanes[this.lane[i]];
    const facts = [["takes", formatMs(this.end[i] - this.begin[i])],
      ["from", `${formatMs(this.begin[i])} to ${formatMs(this.end[i])}`], ["on", lane.name]];
    if (this.bytes[i] > 0) facts.push(["bytes", formatBytes(this.bytes[i])]);
    for (const number of (this.linksOf.get(i) ?? []).slice(0, 4)) {
      const [from, to] = this.links[number];
      const other = from === i ? to : from;
      facts.push([from === i ? "goes to" : "comes from", `${this.lanes[this.lane[other]].name} (${this.name(other)})`]);
    }
    return facts;
  }

  /** Arrows of an interval; of compute, those of the messages that feed it and that it feeds. */
  arrowsOf(i) {
    const numbers = new Set(this.linksOf.get(i) ?? []);
    if (kComputing.has(this.look(i))) {
      const forward = this.look(i) === "forward";
      for (let j = this.first[this.lane[i]]; j < this.first[this.lane[i] + 1]; ++j) {
        if (this.stage[j] !== this.stage[i] || this.microbatch[j] !== this.microbatch[i] || this.part[j] !== this.part[i]) continue;
        const words = this.looks[this.kind[j]].words;
        if (words.endsWith("gradient") === forward) continue;
        for (const number of this.linksOf.get(j) ?? []) numbers.add(number);
      }
    }
    return [...numbers];
  }

  /** Share of computing devices in each of `bins` equal spans. */
  busy(bins) {
    const work = new Float64Array(bins);
    const width = this.span / bins;
    for (let i = 0; i < this.count; ++i) {
      if (!kComputing.has(this.look(i))) continue;
      const last = Math.min(bins - 1, Math.floor(this.end[i] / width));
      for (let bin = Math.min(bins - 1, Math.floor(this.begin[i] / width)); bin <= last; ++bin) {
        work[bin] += Math.max(0, Math.min(this.end[i], (bin + 1) * width) - Math.max(this.begin[i], bin * width));
      }
    }
    return Array.from(work, (ms) => ms / (width * Math.max(this.lanes.length, 1)));
  }
}
