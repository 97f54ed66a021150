/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The section Memory: the chosen process, its pools over time and now; traces of the folder.  What it shows
   comes from monitor pages every 100 ms, of which the last minutes are kept. */
"use strict";

const SAMPLES_MAX = 3000; /* of each process: five minutes */
const memory = { history: new Map(), chosen: 0, isFrozen: false, at: -1, isDue: false };
const poolKey = p => p.id + " " + p.pool + " " + p.kind + (p.device ? " " + p.device : "");

function keepSamples(state) {
    const there = new Set(state.processes.map(p => p.pid));
    for (const p of state.processes) {
        if (p.error || !p.samples) continue; /* it has not been sampled yet */
        const list = memory.history.get(p.pid) || [];
        if (!list.length) memory.history.set(p.pid, list);
        list.push({ time: state.time_ns, process: p });
        if (list.length > SAMPLES_MAX) list.shift();
    }
    for (const pid of memory.history.keys()) if (!there.has(pid) && pid !== memory.chosen) memory.history.delete(pid);
    return there;
}
function drawProcesses(state, there) {
    const rows = state.processes.filter(p => !p.error).map(p => [p.pid, p.program, p.rank === undefined ? "" : p.rank + " of " + p.ranks,
        bytes(p.live), bytes(p.reserved)]);
    fillTable($("processes"), ["process", "program", "rank", "live", "reserved"], rows, row => {
        const tr = row.tr;
        tr.tabIndex = 0;
        tr.setAttribute("aria-selected", row.values[0] === memory.chosen);
        const pick = () => chooseProcess(row.values[0]);
        tr.addEventListener("click", pick);
        tr.addEventListener("keydown", e => { if (e.key === "Enter") pick(); });
    });
    const refused = state.processes.filter(p => p.error);
    notice(refused.length ? refused.map(p => "process " + p.pid + ": " + p.error).join("; ") : "", "refused");
    $("processes-empty").hidden = rows.length > 0;
    if (!memory.chosen && rows.length) chooseProcess(rows[0][0]);
    $("memory-state").textContent = memory.chosen && !there.has(memory.chosen) ? "process " + memory.chosen + " has ended" : "";
}
function chooseProcess(pid) {
    memory.chosen = pid;
    memory.at = -1;
    freeze(false);
    drawMemory();
}
const chosenHistory = () => memory.history.get(memory.chosen) || [];
function freeze(wanted) {
    memory.isFrozen = wanted;
    memory.shown = wanted ? chosenHistory().slice() : null;
    $("memory-freeze").setAttribute("aria-pressed", wanted);
    if (!wanted) memory.at = -1;
}
const shownHistory = () => memory.shown || chosenHistory();

/* ---- over time ---- */
function drawLine(list) {
    const T = stage("memory-line", 220, 280), left = 78, bottom = 22, width = T.width - left - 8, height = T.height - bottom - 8;
    const c = T.ctx, pools = new Map();
    let top = 1;
    c.clearRect(0, 0, T.width, T.height);
    for (const s of list) {
        top = Math.max(top, s.process.reserved);
        for (const p of s.process.pools) if (p.live && !pools.has(poolKey(p))) pools.set(poolKey(p), palette[pools.size % palette.length]);
    }
    top *= 1.05;
    const from = list[0].time, span = Math.max(list[list.length - 1].time - from, 1e9);
    const xOf = t => left + (t - from) / span * width, yOf = v => 8 + height - v / top * height;
    c.font = "12px system-ui, sans-serif";
    c.fillStyle = css("--soft");
    c.strokeStyle = css("--line");
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (let v = 0, s = steps(top, 4, true); v <= top; v += s) {
        c.beginPath(); c.moveTo(left, Math.round(yOf(v)) + .5); c.lineTo(left + width, Math.round(yOf(v)) + .5); c.stroke();
        c.fillText(bytes(v), left - 8, yOf(v));
    }
    c.textBaseline = "top";
    for (let s = steps(span, 6, false), t = span; t >= 0; t -= s) {
        c.textAlign = t === span ? "right" : t < s / 2 ? "left" : "center";
        c.fillText(span - t < 1e6 ? "now" : duration(span - t) + " ago", xOf(from + t), 12 + height);
    }
    const sums = new Float64Array(list.length);
    for (const [key, colour] of pools) {
        c.fillStyle = colour;
        c.beginPath();
        list.forEach((s, i) => c.lineTo(xOf(s.time), yOf(sums[i])));
        for (let i = list.length - 1; i >= 0; i--) {
            const p = list[i].process.pools.find(q => poolKey(q) === key);
            sums[i] += p ? p.live : 0;
            c.lineTo(xOf(list[i].time), yOf(sums[i]));
        }
        c.fill();
    }
    c.strokeStyle = css("--reserved");
    c.lineWidth = 1.5;
    c.beginPath();
    list.forEach((s, i) => i ? c.lineTo(xOf(s.time), yOf(s.process.reserved)) : c.moveTo(xOf(s.time), yOf(s.process.reserved)));
    c.stroke();
    if (memory.isFrozen) {
        T.top.fillStyle = css("--mark");
        T.top.fillRect(xOf(list[memory.at < 0 ? list.length - 1 : memory.at].time) - .75, 8, 1.5, height);
    }
    return pools;
}

/* ---- at one moment ---- */
function poolBar(p, most, colour, parent) {
    const row = element("div", undefined, parent);
    element("span", p.pool + " " + p.kind + (p.device ? ", " + p.device : "") + ", pool " + p.id, row);
    const bar = element("div", undefined, row);
    row.className = "pool";
    bar.className = "pool-bar";
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", bytes(p.live) + " live of " + bytes(p.reserved) + " reserved");
    const part = (name, n, background) => {
        const e = element("i", undefined, bar);
        e.className = name;
        e.style.width = 100 * n / most + "%";
        if (background) e.style.background = background;
        return e;
    };
    part("live", p.live, colour);
    part("cached", Math.min(p.thread_cached + p.depot_cached, p.reserved - p.live));
    part("rest", Math.max(0, p.reserved - p.live - p.thread_cached - p.depot_cached));
    part("peak", 0).style.left = 100 * p.reserved_peak / most + "%";
    element("small", bytes(p.live) + " live in " + count(p.blocks) + (p.blocks === 1 ? " block" : " blocks") + ", " + bytes(p.reserved)
        + " reserved, at most " + bytes(p.reserved_peak) + "; largest free " + bytes(p.largest_free) + (p.rises >= 3 ? "; growing" : ""), row);
}
function drawMoment(p, pools) {
    const box = $("memory-pools"), most = Math.max(1, ...p.pools.map(q => q.reserved_peak));
    box.replaceChildren();
    for (const q of p.pools) if (q.reserved_peak) poolBar(q, most, pools.get(poolKey(q)) || palette[0], box);
    fillTable($("memory-tags"), ["tag", "live", "peak", "blocks", "allocations", ""], (p.tags || []).map(t => [t.name, bytes(t.live), bytes(t.live_peak),
        count(t.blocks), count(t.allocations), t.rises >= 3 ? "growing" : ""]));
    fillTable($("memory-devices"), ["device", "reserved", "limit", "commands"], (p.devices || []).map(d => [d.device + (d.name ? ", " + d.name : ""), bytes(d.reserved),
        d.limit ? bytes(d.limit) : "none", count(d.commands)]));
    const tiers = p.buffers ? p.buffers.tiers : [];
    fillTable($("memory-tiers"), ["tier", "used", "room", "read", "written", "errors"], tiers.map(t => [t.name, bytes(t.used), t.capacity === null ? "unknown" : bytes(t.capacity),
        bytes(t.read), bytes(t.written), count(t.errors)]));
    for (const id of ["memory-tags", "memory-devices", "memory-tiers"]) $(id).hidden = !$(id).tBodies.length || !$(id).tBodies[0].rows.length;
}
function drawMemory() {
    if (memory.isDue || $("memory").hidden) return;
    memory.isDue = true;
    requestAnimationFrame(() => {
        const list = shownHistory();
        memory.isDue = false;
        $("memory-chosen").hidden = !list.length;
        if (!list.length) return;
        const at = memory.at < 0 ? list.length - 1 : Math.min(memory.at, list.length - 1), p = list[at].process;
        $("memory-title").textContent = p.program + ", process " + p.pid + (p.rank === undefined ? "" : ", rank " + p.rank + " of " + p.ranks);
        $("memory-scrub").max = list.length - 1;
        if (!memory.isFrozen) $("memory-scrub").value = list.length - 1;
        drawMoment(p, drawLine(list));
    });
}

/* ---- traces ---- */
async function listTraces() {
    const { files } = await askJson("GET", "/api/files"), box = $("traces");
    const traces = files.filter(f => /\.(trace|usmtrace)$/.test(f.path));
    box.replaceChildren();
    for (const f of traces) {
        const row = element("div", f.path + ", " + bytes(f.size) + " ", box);
        for (const [form, title] of [["html", "Page"], ["perfetto", "Perfetto"]])
            element("button", title, row).addEventListener("click", async e => {
                e.target.disabled = true;
                try {
                    const { path } = await askJson("POST", "/api/export" + query({ path: f.path, form }), "");
                    await saveCopy(path);
                    notice("", "trace");
                } catch (error) {
                    notice(error.message, "trace");
                }
                e.target.disabled = false;
            });
    }
    if (!traces.length) element("p", "There is none in the folder: USM_TRACE=NAME.trace, or usm-prof record, writes one.", box).className = "soft";
}

listen("processes", state => {
    const there = keepSamples(state);
    if ($("memory").hidden) return;
    drawProcesses(state, there);
    if (!memory.isFrozen) drawMemory();
});
sections.memory = () => {
    $("memory-freeze").addEventListener("click", () => { freeze(!memory.isFrozen); drawMemory(); });
    $("memory-scrub").addEventListener("input", e => {
        if (!memory.isFrozen) freeze(true);
        memory.at = +e.target.value;
        drawMemory();
    });
    $("memory-save").addEventListener("click", () => saveText("memory-" + memory.chosen + ".json", JSON.stringify(shownHistory())));
    addEventListener("resize", drawMemory);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMemory);
    listTraces();
};
