/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   Pictures of samples of one process: its pools over time, its addresses, what it holds at a moment, and
   the same as tables.  memory.js shows live samples by it; a page that was saved has it inside, with the
   samples.  A sample is { time, process, map }; a map is that of /api/map, and not each sample has one. */
"use strict";

const memoryView = { samples: [], at: -1, isFrozen: false, cell: null, tablesAt: 0 };
const poolKey = p => p.id + " " + p.pool + " " + p.kind + (p.device ? " " + p.device : "");
const poolName = p => p.pool + " " + p.kind + (p.device ? ", " + p.device : "") + ", pool " + p.id;
const plural = (n, one, many) => count(n) + " " + (n === 1 ? one : many);

/* A text that stays is not told again by screen readers, and its selection is kept. */
function setText(e, text) {
    if (e.textContent !== text) e.textContent = text;
}
/* Rows of texts, changed in place: what has the focus keeps it.  The first text of a row is its head. */
function syncTable(table, caption, heads, rows) {
    const resize = (box, tag, n) => {
        while (box.children.length > n) box.lastElementChild.remove();
        while (box.children.length < n) element(tag, "", box);
    };
    if (!table.tHead) {
        table.createCaption();
        element("tr", undefined, element("thead", undefined, table));
        element("tbody", undefined, table);
    }
    setText(table.caption, caption);
    table.caption.hidden = !caption;
    resize(table.tHead.rows[0], "th", heads.length);
    heads.forEach((h, k) => { const e = table.tHead.rows[0].children[k]; e.scope = "col"; setText(e, h); });
    resize(table.tBodies[0], "tr", rows.length);
    rows.forEach((row, i) => {
        const tr = table.tBodies[0].rows[i];
        if (!tr.children.length) element("th", "", tr).scope = "row";
        resize(tr, "td", row.length);
        row.forEach((v, k) => setText(tr.children[k], String(v)));
    });
    table.hidden = !rows.length;
}

/* ---- over time ---- */
const levelsOf = s => s.levels || (s.levels = new Map(s.process.pools.map(p => [poolKey(p), p.live])));
const ago = (list, s) => list[list.length - 1].time - s.time;

function poolColours(list) {
    const pools = new Map();
    for (const s of list)
        for (const [key, live] of levelsOf(s))
            if (live && !pools.has(key)) pools.set(key, palette[pools.size % palette.length]);
    return pools;
}
/* At most `most` samples, the last among them. */
function thinned(list, most) {
    const step = Math.max(1, Math.ceil(list.length / most));
    return list.filter((s, i) => (list.length - 1 - i) % step === 0);
}
const tick = ns => (ns < 1e9 ? duration(ns) : +(ns / 1e9).toPrecision(3) + " s") + " ago";
function drawAxes(c, scale, top, span) {
    c.font = "12px system-ui, sans-serif";
    c.fillStyle = css("--soft");
    c.strokeStyle = css("--line");
    c.lineWidth = 1;
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (let v = 0, s = steps(top, 4, true); v <= top; v += s) {
        const y = Math.round(scale.y(v)) + .5;
        c.beginPath(); c.moveTo(scale.left, y); c.lineTo(scale.left + scale.width, y); c.stroke();
        c.fillText(bytes(v), scale.left - 8, y);
    }
    c.textBaseline = "top";
    for (let s = steps(span, scale.width / 110, false), t = span; t >= 0; t -= s) {
        c.textAlign = t === span ? "right" : t < s / 2 ? "left" : "center";
        c.fillText(span - t < 1e6 ? "now" : tick(span - t), scale.x(scale.from + t), 12 + scale.height);
    }
}
function lineScale(T, list) {
    const left = T.width < 480 ? 62 : 78, width = T.width - left - 8, height = T.height - 30, from = list[0].time;
    const span = Math.max(list[list.length - 1].time - from, 1e9);
    const top = 1.05 * list.reduce((most, s) => Math.max(most, s.process.reserved), 1);
    return { left, width, height, from, span, top, x: t => left + (t - from) / span * width, y: v => 8 + height - v / top * height };
}
function drawLine(list, pools) {
    const T = stage("memory-line", 220, 240), c = T.ctx, scale = lineScale(T, list);
    const some = thinned(list, T.width), sums = new Float64Array(some.length);
    c.clearRect(0, 0, T.width, T.height);
    drawAxes(c, scale, scale.top, scale.span);
    for (const [key, colour] of pools) {
        c.fillStyle = colour;
        c.beginPath();
        some.forEach((s, i) => c.lineTo(scale.x(s.time), scale.y(sums[i])));
        for (let i = some.length - 1; i >= 0; i--) {
            sums[i] += levelsOf(some[i]).get(key) || 0;
            c.lineTo(scale.x(some[i].time), scale.y(sums[i]));
        }
        c.fill();
    }
    c.strokeStyle = css("--reserved");
    c.lineWidth = 1.5;
    c.beginPath();
    some.forEach(s => c.lineTo(scale.x(s.time), scale.y(s.process.reserved)));
    c.stroke();
    if (memoryView.isFrozen) {
        T.top.fillStyle = css("--mark");
        T.top.fillRect(scale.x(shownSample().time) - .75, 8, 1.5, scale.height);
    }
    memoryView.scale = scale;
}
/* By key; a pool that is gone by now has its key. */
function poolNames(pools, process) {
    const names = new Map(process.pools.map(p => [poolKey(p), poolName(p)]));
    return new Map([...pools.keys()].map(key => [key, names.get(key) || key]));
}
function drawLegend(pools, process) {
    const names = poolNames(pools, process);
    const wanted = [...pools].map(([key, colour]) => [names.get(key), colour]).concat([["reserved", css("--reserved")]]);
    const box = $("memory-legend");
    if (box.textContent === wanted.map(w => w[0]).join("")) return;
    box.replaceChildren(...wanted.map(([name, colour]) => {
        const e = element("span");
        element("i", undefined, e).style.background = colour;
        e.append(name);
        return e;
    }));
}

/* ---- addresses: a row of cells for each pool, as many as fit into the width, line after line ---- */
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const CELL = { hole: 0, unknown: 1, free: 2, full: 61, between: 255 };
const cellValues = new Uint8Array(128);
[...DIGITS].forEach((d, i) => { cellValues[d.charCodeAt(0)] = i; });
const LABEL = 18; /* pixels above the cells of a pool */

const cellSize = (n, width) => width < 480 ? 6 : n > 5000 ? 5 : n > 1500 ? 7 : 9;

/* Places of the cells: { pools: [{ id, segments, cells, starts, y, rows }], columns, size, height }. */
function layOutMap(map, width) {
    const total = map.segments.reduce((n, s) => n + s.cells.length + 1, 0), size = cellSize(total, width);
    const columns = Math.max(8, Math.floor(width / size)), pools = [];
    for (const s of map.segments) {
        if (!pools.length || pools[pools.length - 1].id !== s.pool) pools.push({ id: s.pool, segments: [] });
        pools[pools.length - 1].segments.push(s);
    }
    let y = 0;
    for (const p of pools) {
        p.cells = new Uint8Array(p.segments.reduce((n, s) => n + s.cells.length + 1, -1)).fill(CELL.between);
        p.starts = [];
        let at = 0;
        for (const s of p.segments) {
            p.starts.push(at);
            for (let i = 0; i < s.cells.length; i++) p.cells[at + i] = cellValues[s.cells.charCodeAt(i) & 127];
            at += s.cells.length + 1;
        }
        p.rows = Math.ceil(p.cells.length / columns);
        p.y = y + LABEL;
        y = p.y + p.rows * size + 6;
    }
    return { pools, columns, size, height: Math.max(y, LABEL) };
}
/* The pixel of each value of a cell, from free to all used. */
function cellColours(colour) {
    const table = new Uint32Array(256), part = (c, k) => parseInt(c.slice(1 + 2 * k, 3 + 2 * k), 16), free = css("--free");
    for (let u = 0; u <= CELL.full; u++) {
        const t = u ? .25 + .75 * u / CELL.full : 0; /* that something is used shall be seen */
        table[CELL.free + u] = (0xff000000 | [0, 1, 2].reduce((v, k) =>
            v | Math.round(part(free, k) * (1 - t) + part(colour, k) * t) << 8 * k, 0)) >>> 0;
    }
    table[CELL.unknown] = pixel(css("--free-line"), 0);
    table[CELL.hole] = pixel(css("--page"), 0);
    return table;
}
/* One pixel for each cell, which the canvas then makes larger. */
function cellImage(p, columns, colour) {
    const image = new ImageData(columns, p.rows), out = new Uint32Array(image.data.buffer), table = cellColours(colour);
    for (let i = 0; i < p.cells.length; i++) out[i] = table[p.cells[i]];
    const canvas = memoryView.small || (memoryView.small = document.createElement("canvas"));
    canvas.width = columns;
    canvas.height = p.rows;
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
}
function drawGrid(c, p, L) {
    const width = L.columns * L.size, height = p.rows * L.size;
    c.fillStyle = css("--page");
    for (let k = 1; k <= L.columns; k++) c.fillRect(k * L.size - 1, p.y, 1, height);
    for (let k = 1; k <= p.rows; k++) c.fillRect(0, p.y + k * L.size - 1, width, 1);
}
function drawMap(map, process, colours) {
    const box = $("memory-map"), L = layOutMap(map, Math.max(240, box.clientWidth)), T = stage("memory-map", L.height, 240);
    const c = T.ctx, byId = new Map(process.pools.map(p => [p.id, p]));
    c.clearRect(0, 0, T.width, T.height);
    c.imageSmoothingEnabled = false;
    for (const p of L.pools) {
        const pool = byId.get(p.id);
        p.name = pool ? poolName(pool) : "pool " + p.id;
        p.colour = pool && colours.get(poolKey(pool)) || palette[0];
        c.drawImage(cellImage(p, L.columns, p.colour), 0, p.y, L.columns * L.size, p.rows * L.size);
        drawGrid(c, p, L);
        c.font = "12px system-ui, sans-serif";
        c.textBaseline = "bottom";
        c.fillStyle = css("--soft");
        c.fillText(p.name + ": " + bytes(p.segments[0].cell) + " a cell", 0, p.y - 3, T.width);
    }
    memoryView.layout = L;
    memoryView.stage = T;
    markCell();
}
const shareText = v => v === CELL.hole ? "no memory here" : v === CELL.unknown ? "this pool does not tell what is in use"
    : v === CELL.free ? "free" : percent((v - CELL.free) / CELL.full) + " in use";

/* Of a cell { pool: index, cell: index } of the layout; "" between segments and where there is none. */
function cellText(at) {
    const p = at && memoryView.layout.pools[at.pool];
    if (!p || at.cell >= p.cells.length || p.cells[at.cell] === CELL.between) return "";
    let k = p.starts.length - 1;
    while (p.starts[k] > at.cell) k--;
    const s = p.segments[k], base = BigInt(s.base) + BigInt(at.cell - p.starts[k]) * BigInt(s.cell);
    return "0x" + base.toString(16) + ", " + bytes(s.cell) + " of " + p.name + ": " + shareText(p.cells[at.cell]);
}
function cellAt(x, y) {
    const L = memoryView.layout, pool = L ? L.pools.findIndex(p => y >= p.y && y < p.y + p.rows * L.size) : -1;
    const column = L ? Math.floor(x / L.size) : 0;
    if (pool < 0 || column < 0 || column >= L.columns) return null;
    return { pool, cell: Math.floor((y - L.pools[pool].y) / L.size) * L.columns + column };
}
function markCell() {
    const T = memoryView.stage, L = memoryView.layout, p = memoryView.cell && L.pools[memoryView.cell.pool];
    T.top.clearRect(0, 0, T.width, T.height);
    if (!p || !cellText(memoryView.cell)) return;
    T.top.strokeStyle = css("--mark");
    T.top.lineWidth = 2;
    T.top.strokeRect(memoryView.cell.cell % L.columns * L.size - 1, p.y + Math.floor(memoryView.cell.cell / L.columns) * L.size - 1, L.size + 1, L.size + 1);
}
/* Arrow keys walk over cells, Page Up and Page Down over pools; what is between segments is passed over. */
function walkMap(key) {
    const L = memoryView.layout, at = memoryView.cell && L.pools[memoryView.cell.pool] ? { ...memoryView.cell } : { pool: 0, cell: 0 };
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -L.columns, ArrowDown: L.columns }[key];
    const cells = L.pools[at.pool].cells;
    if (key === "Home" || key === "End") at.cell = key === "Home" ? 0 : cells.length - 1;
    else if (key === "PageUp" || key === "PageDown") {
        at.pool = Math.min(Math.max(at.pool + (key === "PageUp" ? -1 : 1), 0), L.pools.length - 1);
        at.cell = 0;
    } else if (!step) return false;
    else if (memoryView.cell) {
        let cell = at.cell + step;
        if (cells[cell] === CELL.between) cell += Math.sign(step);
        if (cell >= 0 && cell < cells.length) at.cell = cell;
    }
    memoryView.cell = at;
    markCell();
    setText($("memory-cell"), cellText(at));
    return true;
}
function mapSums(p) {
    const sum = { memory: 0, used: 0, isUnknown: false, free: 0 };
    for (const s of p.segments) {
        let run = 0;
        for (let i = 0; i < s.cells.length; i++) {
            const v = cellValues[s.cells.charCodeAt(i) & 127], size = Math.min(s.cell, s.size - i * s.cell);
            if (v !== CELL.hole) sum.memory += size;
            sum.isUnknown = sum.isUnknown || v === CELL.unknown;
            if (v > CELL.free) sum.used += size * (v - CELL.free) / CELL.full;
            run = v === CELL.free ? run + size : 0;
            sum.free = Math.max(sum.free, run);
        }
    }
    return sum;
}

/* ---- at one moment ---- */
function poolBar(row, p, most, colour) {
    if (!row.children.length) {
        row.className = "pool";
        element("span", "", row);
        const bar = element("div", undefined, row);
        bar.className = "pool-bar";
        bar.setAttribute("role", "img");
        for (const name of ["live", "cached", "rest", "peak"]) element("i", undefined, bar).className = name;
        element("small", "", row);
    }
    const [title, bar, text] = row.children, [live, cached, rest, peak] = bar.children;
    const kept = Math.min(p.thread_cached + p.depot_cached, Math.max(0, p.reserved - p.live));
    setText(title, poolName(p));
    bar.setAttribute("aria-label", bytes(p.live) + " live of " + bytes(p.reserved) + " reserved");
    live.style.width = 100 * p.live / most + "%";
    live.style.background = colour;
    cached.style.width = 100 * kept / most + "%";
    rest.style.width = 100 * Math.max(0, p.reserved - p.live - kept) / most + "%";
    peak.style.left = 100 * p.reserved_peak / most + "%";
    setText(text, bytes(p.live) + " live in " + plural(p.blocks, "block", "blocks") + ", " + bytes(p.reserved) + " reserved, at most "
        + bytes(p.reserved_peak) + "; largest free " + bytes(p.largest_free) + (p.rises >= 3 ? "; growing" : ""));
}
function drawPools(p, colours) {
    const box = $("memory-pools"), pools = p.pools.filter(q => q.reserved_peak), most = Math.max(1, ...pools.map(q => q.reserved_peak));
    while (box.children.length > pools.length) box.lastElementChild.remove();
    pools.forEach((q, i) => poolBar(box.children[i] || element("div", undefined, box), q, most, colours.get(poolKey(q)) || palette[0]));
}
function drawTables(p) {
    const tiers = p.buffers ? p.buffers.tiers : [];
    syncTable($("memory-tags"), "Tags", ["tag", "live", "peak", "blocks", "allocations", ""], (p.tags || []).map(t => [t.name, bytes(t.live),
        bytes(t.live_peak), count(t.blocks), count(t.allocations), t.rises >= 3 ? "growing" : ""]));
    syncTable($("memory-devices"), "Devices", ["device", "reserved", "limit", "commands"], (p.devices || []).map(d =>
        [d.device + (d.name ? ", " + d.name : ""), bytes(d.reserved), d.limit ? bytes(d.limit) : "none", count(d.commands)]));
    syncTable($("memory-tiers"), "Spill tiers", ["tier", "used", "room", "read", "written", "errors"], tiers.map(t =>
        [t.name, bytes(t.used), t.capacity === null ? "unknown" : bytes(t.capacity), bytes(t.read), bytes(t.written), count(t.errors)]));
}

/* ---- the drawings as tables, for who does not see them ---- */
const MOMENTS = 12;
function lineTable(list, pools) {
    const some = thinned(list, MOMENTS), keys = [...pools.keys()], names = poolNames(pools, shownSample().process);
    syncTable($("memory-line-table"), "Live bytes by pool, and reserved bytes, over time", ["moment", "reserved", ...names.values()],
        some.map(s => [ago(list, s) ? duration(ago(list, s)) + " ago" : "last", bytes(s.process.reserved),
            ...keys.map(k => bytes(levelsOf(s).get(k) || 0))]));
}
function mapTable() {
    const L = memoryView.layout;
    syncTable($("memory-map-table"), "Addresses of each pool", ["pool", "addresses from", "to", "stretches", "memory", "in use", "longest free"],
        L ? L.pools.map(p => {
            const last = p.segments[p.segments.length - 1], sum = mapSums(p);
            return [p.name, p.segments[0].base, "0x" + (BigInt(last.base) + BigInt(last.size)).toString(16), count(p.segments.length), bytes(sum.memory),
                sum.isUnknown ? "not told" : bytes(sum.used), sum.isUnknown ? "not told" : bytes(sum.free)];
        }) : []);
}

/* ---- all of it ---- */
const shownIndex = () => memoryView.at < 0 ? memoryView.samples.length - 1 : Math.min(memoryView.at, memoryView.samples.length - 1);
const shownSample = () => memoryView.samples[shownIndex()];
/* The map of the moment, or the last one before it; of moments before the first map, the first. */
function shownMap() {
    for (let i = shownIndex(); i >= 0; i--) if (memoryView.samples[i].map) return memoryView.samples[i].map;
    const later = memoryView.samples.find(s => s.map);
    return later ? later.map : null;
}
function drawMapPart(p, colours) {
    const map = shownMap();
    $("memory-map-part").hidden = !map || !map.segments.length;
    if ($("memory-map-part").hidden) memoryView.layout = null;
    else drawMap(map, p, colours);
    if (memoryView.cell && memoryView.layout && $("memory-cell").textContent) setText($("memory-cell"), cellText(memoryView.cell));
}
function drawSamples() {
    const list = memoryView.samples, s = shownSample(), p = s.process, colours = poolColours(list);
    setText($("memory-title"), p.program + ", process " + p.pid + (p.rank === undefined ? "" : ", rank " + p.rank + " of " + p.ranks));
    $("memory-scrub").max = list.length - 1;
    if (memoryView.at < 0) $("memory-scrub").value = list.length - 1;
    $("memory-scrub").setAttribute("aria-valuetext", ago(list, s) ? duration(ago(list, s)) + " before the last sample" : "the last sample");
    setText($("memory-moment"), ago(list, s) ? duration(ago(list, s)) + " ago" : "");
    drawLine(list, colours);
    drawLegend(colours, p);
    drawPools(p, colours);
    drawMapPart(p, colours);
    drawTables(p);
    if (memoryView.isFrozen || performance.now() - memoryView.tablesAt > 1000) { /* a reader has time to listen */
        memoryView.tablesAt = performance.now();
        lineTable(list, colours);
        mapTable();
    }
}
let isDue = false;
function redrawSamples() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
        isDue = false;
        if (!memoryView.samples.length) return;
        drawSamples();
        const { time, map } = shownSample();
        memoryView.drawn = { time, at: performance.now(), sampled: map ? map.sampled_ns : 0 };
    });
}
function showMoment(at) {
    memoryView.at = Math.min(Math.max(at, 0), memoryView.samples.length - 1);
    redrawSamples();
}
/* `hold`: called before a moment is chosen, so that the samples stay. */
function startView(hold) {
    const map = $("memory-map").children[1], line = $("memory-line").children[1];
    const choose = at => { hold(); showMoment(at); };
    $("memory-scrub").addEventListener("input", e => choose(+e.target.value));
    line.addEventListener("click", e => {
        if (!memoryView.scale) return;
        const time = memoryView.scale.from + (e.offsetX - memoryView.scale.left) / memoryView.scale.width * memoryView.scale.span;
        const later = memoryView.samples.findIndex(s => s.time >= time);
        choose(later < 0 ? memoryView.samples.length - 1 : later);
        $("memory-scrub").value = memoryView.at;
    });
    map.addEventListener("pointermove", e => tip(cellText(cellAt(e.offsetX, e.offsetY)), e));
    map.addEventListener("pointerleave", e => tip("", e));
    map.addEventListener("keydown", e => { if (memoryView.layout && walkMap(e.key)) e.preventDefault(); });
    $("memory-tables").addEventListener("click", e => {
        const wanted = e.target.getAttribute("aria-pressed") !== "true";
        e.target.setAttribute("aria-pressed", wanted);
        $("memory-chosen").classList.toggle("tables", wanted);
    });
    addEventListener("resize", redrawSamples);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawSamples);
}
/* Of a page that was saved: its samples are in it. */
function startSaved() {
    for (const e of document.querySelectorAll(".live-only")) e.remove();
    memoryView.samples = JSON.parse($("memory-data").textContent);
    memoryView.isFrozen = true;
    memoryView.at = memoryView.samples.length - 1;
    $("memory-chosen").hidden = false;
    $("memory-scrub").max = $("memory-scrub").value = memoryView.at;
    startView(() => {});
    drawSamples();
    document.documentElement.dataset.state = "drawn";
}
