"use strict";
(() => {
const NS = "http://www.w3.org/2000/svg";
const LEFT = 58, RIGHT = 12;
const NAMES = {cpu: "processors busy", gpu: "GPUs busy", waiting: "waiting for other ranks", memory: "program, fullest node",
  node_memory: "all on it", busiest: "processors of the busiest rank", read: "read", write: "written", received: "received", sent: "sent",
  switches: "context switches", ranks: "ranks", step: "step", seconds_per_step: "seconds a step", gpu_watts: "GPU power"};
const GROUPS = [["cpu", "gpu", "waiting"], ["busiest"], ["memory", "node_memory"], ["seconds_per_step"],
  ["read", "write"], ["received", "sent"], ["switches"], ["gpu_watts"]];
const TITLES = ["Share of what is held", "Processors of the busiest rank", "Memory", "Seconds a step", "Disk and files",
  "Network of the nodes", "Context switches", "GPU power"];
const STYLES = [["--p0", ""], ["--p1", "6 3"], ["--p2", "2 3"], ["--p3", "8 3 2 3"]];
const SIGNS = {effective: "▲", late: "◆", useless: "●", harmful: "▼", open: "○"};
const COLOURS = {effective: "--good", late: "--late", useless: "--idle", harmful: "--bad", open: "--idle"};

function make(parent, name, attributes, text) {
  const found = document.createElementNS(NS, name);
  for (const key in attributes) found.setAttribute(key, attributes[key]);
  if (text !== undefined) found.textContent = text;
  if (parent) parent.appendChild(found);
  return found;
}
function html(parent, name, attributes, text) {
  const found = document.createElement(name);
  for (const key in attributes) found.setAttribute(key, attributes[key]);
  if (text !== undefined) found.textContent = text;
  if (parent) parent.appendChild(found);
  return found;
}
function clock(seconds) {
  const sign = seconds < 0 ? "−" : "", whole = Math.round(Math.abs(seconds));
  if (Math.abs(seconds) < 10 && seconds % 1) return sign + Math.abs(seconds).toFixed(1) + " s";
  const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60, two = (n) => String(n).padStart(2, "0");
  if (h >= 48) return sign + Math.floor(h / 24) + "d " + (h % 24) + ":" + two(m);
  return h ? sign + h + ":" + two(m) + ":" + two(s) : m ? sign + m + ":" + two(s) : sign + s + " s";
}
function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return (100 * value).toFixed(0) + " %";
  if (unit === "bytes" || unit === "bytes/s") {
    const units = ["", "K", "M", "G", "T", "P"];
    let place = 0;
    while (Math.abs(value) >= 1024 && place < 5) { value /= 1024; place += 1; }
    return (value >= 10 || !place ? value.toFixed(0) : value.toFixed(1)) + " " + units[place] + "B" + (unit === "bytes" ? "" : "/s");
  }
  if (unit === "s") return value.toPrecision(3).replace(/\.?0+$/, "") + " s";
  const text = Math.abs(value) >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return unit ? text + " " + unit : text;
}
function nice(span, count) {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
}
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
function timeStep(span, count) {
  const raw = span / count;
  return raw < 1 ? nice(span, count) : TIMES.find((each) => each >= raw) || Math.ceil(raw / 604800) * 604800;
}
function levelAt(levels, time) {
  let low = 0, high = levels.length;
  while (low < high) { const middle = (low + high) >> 1; if (levels[middle][0] <= time) low = middle + 1; else high = middle; }
  return low ? levels[low - 1][1] : 0;
}

class Timeline {
  constructor(element, run) {
    this.element = element; this.run = run;
    this.from = 0; this.to = run.seconds; this.at = null;
    this.rows = Math.max(0, ...Object.values(run.columns || {}).map((each) => each.mean.length));
    this.colours = new Map(run.summaries.map((each, place) => [each.phase, "--p" + place % 8]));
    const tools = html(element, "div", {class: "tools"});
    for (const [text, label, action] of [["+", "Zoom in", () => this.zoom(0.5)], ["−", "Zoom out", () => this.zoom(2)],
      ["←", "Earlier", () => this.move(-0.5)], ["→", "Later", () => this.move(0.5)], ["All", "Show all", () => this.show(0, run.seconds)]]) {
      html(tools, "button", {type: "button", "aria-label": label + ", timeline of " + element.dataset.name}, text).addEventListener("click", action);
    }
    this.range = html(tools, "span", {class: "range"});
    this.legend();
    this.plot = make(element, "svg", {class: "plot", tabindex: "0", role: "application",
      "aria-label": this.summary()});
    this.read = html(element, "div", {class: "read", "aria-live": "polite"});
    this.events();
    this.draw();
    new ResizeObserver(() => this.draw()).observe(element);
  }
  summary() {
    const run = this.run, most = Math.max(0, ...run.held.map((each) => each[1]));
    return "Timeline of " + this.element.dataset.name + ": " + clock(run.seconds) + ", up to " + most + " nodes, " + run.phases.length +
      " stretches of " + run.summaries.length + " phases, " + run.changes.length +
      " changes of size. Left and right arrow read along it, plus and minus zoom, Home and End go to the ends.";
  }
  legend() {
    const box = html(this.element, "div", {class: "legend"});
    const entry = (text, draw) => { const span = html(box, "span", {}); const svg = make(span, "svg", {"aria-hidden": "true"}); draw(svg); span.append(text); };
    entry("held", (s) => make(s, "rect", {x: 1, y: 2, width: 24, height: 9, style: "fill:var(--held);opacity:.35;stroke:var(--held)"}));
    entry("requested", (s) => make(s, "path", {d: "M0 6H26", style: "stroke:var(--req);stroke-width:2;stroke-dasharray:5 3"}));
    if (this.run.columns && this.run.columns.used) entry("used", (s) => make(s, "path", {d: "M0 6H26", style: "stroke:var(--used);stroke-width:2.5"}));
    for (const word of new Set(this.run.changes.map((each) => each.verdict)))
      entry("change of size: " + word, (s) => make(s, "text", {x: 8, y: 11, style: "font-size:12px;fill:var(" + COLOURS[word] + ")"}, SIGNS[word]));
  }
  events() {
    const plot = this.plot;
    let start = null;
    const place = (event) => { const box = plot.getBoundingClientRect(); return this.timeOf(event.clientX - box.left); };
    plot.addEventListener("pointermove", (event) => { const time = place(event); if (start !== null) this.select(start, time); this.point(time); });
    plot.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse" && event.button === 0) { start = place(event); plot.setPointerCapture(event.pointerId); } else this.point(place(event)); });
    plot.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const time = place(event), from = start; start = null; this.select(null);
      if (Math.abs(time - from) > (this.to - this.from) * 0.01) this.show(Math.min(from, time), Math.max(from, time));
    });
    plot.addEventListener("pointercancel", () => { start = null; this.select(null); });
    plot.addEventListener("dblclick", () => this.show(0, this.run.seconds));
    plot.addEventListener("wheel", (event) => { if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event)); } }, {passive: false});
    plot.addEventListener("keydown", (event) => {
      const span = this.to - this.from, step = event.shiftKey ? span / 10 : span / 100;
      const at = this.at === null ? this.from : this.at;
      const keys = {ArrowLeft: () => this.walk(at - step), ArrowRight: () => this.walk(at + step), Home: () => this.walk(0),
        End: () => this.walk(this.run.seconds), "+": () => this.zoom(0.5, at), "=": () => this.zoom(0.5, at), "-": () => this.zoom(2, at),
        "0": () => this.show(0, this.run.seconds), PageUp: () => this.move(-0.5), PageDown: () => this.move(0.5)};
      if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
    });
  }
  show(from, to) {
    const least = Math.max(this.run.period * 4, 1e-3), all = this.run.seconds;
    if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
    if (to - from >= all) { from = 0; to = all; }
    if (from < 0) { to -= from; from = 0; }
    if (to > all) { from -= to - all; to = all; }
    this.from = Math.max(0, from); this.to = to;
    this.draw();
  }
  zoom(factor, around) {
    const middle = around === undefined || around === null ? (this.from + this.to) / 2 : around;
    this.show(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  }
  move(share) { const by = (this.to - this.from) * share; this.show(this.from + by, this.to + by); }
  walk(time) {
    time = Math.min(this.run.seconds, Math.max(0, time));
    if (time < this.from || time > this.to) { const half = (this.to - this.from) / 2; this.show(time - half, time + half); }
    this.point(time);
  }
  x(time) { return LEFT + (time - this.from) / (this.to - this.from) * (this.width - LEFT - RIGHT); }
  timeOf(x) { const share = (x - LEFT) / Math.max(1, this.width - LEFT - RIGHT); return this.from + Math.min(1, Math.max(0, share)) * (this.to - this.from); }
  select(from, to) {
    if (this.picked) { this.picked.remove(); this.picked = null; }
    if (from === null) return;
    const a = this.x(Math.min(from, to)), b = this.x(Math.max(from, to));
    this.picked = make(this.plot, "rect", {class: "pick", x: a, y: 0, width: Math.max(1, b - a), height: this.height});
  }
  point(time) {
    this.at = time;
    if (this.line) this.line.remove();
    if (time >= this.from && time <= this.to) this.line = make(this.plot, "path", {class: "cursor", d: "M" + this.x(time) + " 0V" + this.height});
    const run = this.run, words = [clock(time)];
    const phase = run.phases.find((each) => each.start <= time && time < each.end);
    if (phase) words.push("phase " + phase.phase);
    words.push("held " + levelAt(run.held, time) + " nodes", "requested " + levelAt(run.requested, time));
    const span = run.spans.find((each) => each.start <= time && time < each.end && each.kind !== "compute");
    if (span && !phase) words.push(run.costs.find((each) => each.kind === span.kind).what);
    const row = Math.floor(time / run.period);
    for (const name in run.columns || {}) {
      const column = run.columns[name], value = column.mean[row];
      if (value !== null && value !== undefined) words.push((NAMES[name] || name) + " " + amount(value, column.unit));
    }
    const near = run.changes.filter((each) => Math.abs(each.time - time) < (this.to - this.from) / 60);
    for (const each of near) words.push("change " + each.before + " → " + each.after + ": " + each.verdict + ", " + each.why);
    this.read.textContent = words.join(" · ");
  }
  draw() {
    const width = this.element.clientWidth - 18;
    if (width < 50) return;
    this.width = width;
    this.plot.replaceChildren();
    this.line = this.picked = null;
    this.range.textContent = clock(this.from) + " – " + clock(this.to);
    let y = this.phases(0);
    y = this.nodes(y);
    const columns = this.run.columns || {}, used = new Set(["used", "step", "ranks"]);
    GROUPS.forEach((names, place) => {
      const there = names.filter((name) => columns[name] && columns[name].mean.some((each) => each !== null));
      names.forEach((name) => used.add(name));
      if (there.some((name) => columns[name].mean.some((each) => each))) y = this.chart(y, TITLES[place], there);
    });
    if (this.run.queue.length) y = this.queue(y);
    for (const name in columns) if (!used.has(name) && columns[name].mean.some((each) => each !== null)) y = this.chart(y, name, [name]);
    y = this.axis(y);
    this.height = y;
    this.plot.setAttribute("height", y);
    this.plot.setAttribute("viewBox", "0 0 " + width + " " + y);
    if (this.at !== null) this.point(this.at);
  }
  phases(y) {
    const group = make(this.plot, "g", {class: "phase"});
    let end = -1e9;
    for (const each of this.run.phases) {
      if (each.end < this.from || each.start > this.to) continue;
      const a = Math.max(LEFT, this.x(each.start)), b = Math.min(this.width - RIGHT, this.x(each.end));
      if (b - a < 0.4 && b < end + 0.4) continue;
      end = b;
      const colour = this.colours.get(each.phase) || "--p7";
      const rect = make(group, "rect", {x: a, y: y + 2, width: Math.max(0.6, b - a), height: 18, style: "fill:var(" + colour + ");opacity:.45"});
      make(rect, "title", {}, each.phase + ", " + clock(each.end - each.start) + " on " + each.nodes + " nodes");
      if (b - a > 7 * each.phase.length + 6) make(group, "text", {x: (a + b) / 2, y: y + 15, "text-anchor": "middle"}, each.phase);
    }
    make(group, "text", {x: LEFT - 6, y: y + 15, "text-anchor": "end"}, "phase");
    return y + 26;
  }
  frame(y, height, title, most, unit) {
    const group = make(this.plot, "g", {}), top = y + 18, base = top + height;
    make(group, "text", {class: "title", x: LEFT, y: y + 12}, title);
    const lines = height > 100 ? 4 : 2;
    const step = unit === "bytes" || unit === "bytes/s" ? most / lines : nice(most, lines);
    for (let value = 0; value <= most * 1.001; value += step) {
      const place = base - value / most * height;
      make(group, "path", {class: "grid", d: "M" + LEFT + " " + place + "H" + (this.width - RIGHT)});
      make(group, "text", {x: LEFT - 6, y: place + 4, "text-anchor": "end"}, amount(value, unit));
    }
    return [group, top, base];
  }
  steps(levels, scale) {
    let path = "";
    const begin = Math.max(this.from, levels.length ? Math.min(levels[0][0], this.to) : this.to);
    path += "M" + this.x(begin) + " " + scale(levelAt(levels, begin));
    for (const [time, nodes] of levels) if (time > begin && time < this.to) path += "H" + this.x(time).toFixed(1) + "V" + scale(nodes).toFixed(1);
    return path + "H" + this.x(this.to).toFixed(1);
  }
  nodes(y) {
    const run = this.run, height = 130;
    const most = Math.max(1, ...run.held.map((each) => each[1]), ...run.requested.map((each) => each[1]));
    const [group, top, base] = this.frame(y, height, "Nodes requested, held and used", most, "");
    const scale = (value) => base - value / most * height;
    const held = this.steps(run.held, scale);
    const begin = Math.max(this.from, run.held.length ? run.held[0][0] : 0);
    make(group, "path", {d: held + "V" + base + "H" + this.x(begin) + "Z", style: "fill:var(--held);opacity:var(--band)"});
    make(group, "path", {d: held, style: "fill:none;stroke:var(--held);stroke-width:1.5"});
    if (run.columns && run.columns.used) this.series(group, "used", scale, "--used", "");
    make(group, "path", {d: this.steps(run.requested, scale), style: "fill:none;stroke:var(--req);stroke-width:2;stroke-dasharray:6 4"});
    for (const each of run.changes) {
      if (each.time < this.from || each.time > this.to) continue;
      const x = this.x(each.time), end = each.computing === null ? x : Math.min(this.width - RIGHT, this.x(each.computing));
      const colour = COLOURS[each.verdict];
      make(group, "rect", {x: x, y: top, width: Math.max(1, end - x), height: height, style: "fill:var(" + colour + ");opacity:.13"});
      make(group, "path", {d: "M" + x + " " + top + "V" + base, style: "stroke:var(" + colour + ");stroke-width:1.5"});
      const mark = make(group, "text", {x: x + 3, y: top + 11, style: "font-size:13px;fill:var(" + colour + ")"}, SIGNS[each.verdict]);
      make(mark, "title", {}, each.before + " → " + each.after + " nodes by " + each.by + ": " + each.verdict + ", " + each.why);
    }
    return base + 8;
  }
  series(group, name, scale, colour, dash) {
    const column = this.run.columns[name], period = this.run.period, pixels = Math.max(50, this.width - LEFT - RIGHT);
    const first = Math.max(0, Math.floor(this.from / period)), last = Math.min(column.mean.length - 1, Math.ceil(this.to / period));
    const bunch = Math.max(1, Math.ceil((last - first + 1) / pixels));
    let line = "", pen = false, shades = [], upper = [], lower = [];
    const least = column.least || column.mean, most = column.most || column.mean, shaded = bunch > 1 || column.least || column.most;
    const flush = () => { if (upper.length > 1) shades.push("M" + upper.join("L") + "L" + lower.reverse().join("L") + "Z"); upper = []; lower = []; };
    for (let row = first; row <= last; row += bunch) {
      let sum = 0, count = 0, low = Infinity, high = -Infinity;
      for (let each = row; each < Math.min(row + bunch, last + 1); each += 1) {
        const value = column.mean[each];
        if (value === null) continue;
        sum += value; count += 1;
        low = Math.min(low, least[each] === null ? value : least[each]); high = Math.max(high, most[each] === null ? value : most[each]);
      }
      if (!count) { pen = false; flush(); continue; }
      const x = this.x((row + Math.min(bunch, last + 1 - row) / 2) * period).toFixed(1);
      line += (pen ? "L" : "M") + x + " " + scale(sum / count).toFixed(1);
      if (!pen) line += "h.1";
      pen = true;
      if (shaded) { upper.push(x + " " + scale(high).toFixed(1)); lower.push(x + " " + scale(low).toFixed(1)); }
    }
    flush();
    if (shades.length) make(group, "path", {d: shades.join(""), style: "fill:var(" + colour + ");opacity:var(--band)"});
    make(group, "path", {d: line, style: "fill:none;stroke:var(" + colour + ");stroke-width:1.6;stroke-dasharray:" + (dash || "none")});
  }
  chart(y, title, names) {
    const columns = this.run.columns, unit = columns[names[0]].unit, period = this.run.period;
    const first = Math.max(0, Math.floor(this.from / period)), last = Math.ceil(this.to / period);
    let most = 0;
    for (const name of names) for (const value of (columns[name].most || columns[name].mean).slice(first, last + 1)) if (value !== null && value > most) most = value;
    if (unit === "share") most = Math.max(1, most);
    const limit = names.includes("memory") ? this.run.memory_held : null;
    if (limit && most > limit / 4) most = Math.max(most, limit);
    most = most || 1;
    const [group, top, base] = this.frame(y, 62, title, most, unit), scale = (value) => base - Math.max(0, value) / most * 62;
    if (limit && limit <= most) make(group, "path", {d: "M" + LEFT + " " + scale(limit) + "H" + (this.width - RIGHT), style: "stroke:var(--bad);stroke-dasharray:2 3"});
    let x = LEFT + 7.2 * title.length + 14;
    names.forEach((name, place) => {
      const [colour, dash] = STYLES[place % 4];
      this.series(group, name, scale, colour, dash);
      if (names.length > 1 || NAMES[name] && NAMES[name].toLowerCase() !== title.toLowerCase()) {
        const text = NAMES[name] || name;
        make(group, "path", {d: "M" + x + " " + (y + 8) + "h20", style: "stroke:var(" + colour + ");stroke-width:2;stroke-dasharray:" + (dash || "none")});
        make(group, "text", {x: x + 24, y: y + 12}, text);
        x += 34 + 6 * text.length;
      }
    });
    return base + 8;
  }
  queue(y) {
    const rows = this.run.queue, most = Math.max(1, ...rows.map((each) => Math.max(each[1], each[2])));
    const [group, top, base] = this.frame(y, 62, "Queue as seen", most, ""), scale = (value) => base - value / most * 62;
    const title = LEFT + 108;
    [[1, "jobs waiting", "--p1", "none"], [2, "nodes idle", "--p0", "6 3"]].forEach(([place, text, colour, dash], number) => {
      make(group, "path", {d: this.steps(rows.map((each) => [each[0], each[place]]), scale), style: "fill:none;stroke:var(" + colour + ");stroke-width:1.6;stroke-dasharray:" + dash});
      make(group, "path", {d: "M" + (title + 110 * number) + " " + (y + 8) + "h20", style: "stroke:var(" + colour + ");stroke-width:2;stroke-dasharray:" + dash});
      make(group, "text", {x: title + 24 + 110 * number, y: y + 12}, text);
    });
    return base + 8;
  }
  axis(y) {
    const group = make(this.plot, "g", {}), span = this.to - this.from, step = timeStep(span, Math.max(2, this.width / 110));
    for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) {
      const x = this.x(time);
      make(group, "path", {class: "grid", d: "M" + x + " " + y + "v5"});
      make(group, "text", {x: x, y: y + 17, "text-anchor": "middle"}, clock(time));
    }
    return y + 22;
  }
}
const runs = JSON.parse(document.getElementById("data").textContent);
for (const element of document.querySelectorAll(".timeline")) new Timeline(element, runs[Number(element.dataset.run) - 1]);
})();
