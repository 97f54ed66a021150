/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The section Memory: the chosen process, live, and what is saved of it; who holds its memory; traces of
   the folder.  Samples come from monitor pages every 100 ms, of which the last minutes are kept;
   memory_view.js draws them. */
"use strict";

const SAMPLES_MAX = 3000; /* of each process: five minutes */
const memory = { history: new Map(), chosen: 0, isAsked: false, sites: 0 };

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
const rowPid = tr => +tr.children[0].textContent;
function drawProcesses(state, there) {
    const rows = state.processes.filter(p => !p.error).map(p => [p.pid, p.program, p.rank === undefined ? "" : p.rank + " of " + p.ranks,
        bytes(p.live), bytes(p.reserved)]);
    syncTable($("processes"), "", ["process", "program", "rank", "live", "reserved"], rows);
    const refused = state.processes.filter(p => p.error);
    notice(refused.length ? refused.map(p => "process " + p.pid + ": " + p.error).join("; ") : "", "refused");
    $("processes-empty").hidden = rows.length > 0;
    if (!memory.chosen && rows.length) chooseProcess(rows[0][0]);
    for (const tr of $("processes").tBodies[0].rows) {
        tr.tabIndex = 0;
        tr.setAttribute("aria-selected", rowPid(tr) === memory.chosen);
    }
    setText($("memory-state"), memory.chosen && !there.has(memory.chosen) ? "process " + memory.chosen + " has ended" : "");
}
function chooseProcess(pid) {
    memory.chosen = pid;
    memoryView.cell = null;
    memoryView.tablesAt = 0;
    freeze(false);
    showSites();
    for (const tr of $("processes").tBodies[0].rows) tr.setAttribute("aria-selected", rowPid(tr) === pid);
}
const chosenHistory = () => memory.history.get(memory.chosen) || [];
function freeze(wanted) {
    memoryView.isFrozen = wanted;
    memoryView.samples = wanted ? chosenHistory().slice() : chosenHistory();
    memoryView.at = -1;
    $("memory-freeze").setAttribute("aria-pressed", wanted);
    drawMemory();
}
const shownHistory = () => memoryView.samples;
function drawMemory() {
    if (!memoryView.isFrozen) memoryView.samples = chosenHistory();
    $("memory-chosen").hidden = !shownHistory().length;
    if (!$("memory").hidden) redrawSamples();
}

/* ---- where the memory lies: asked for with each sample of the process that is shown ---- */
/* Maps of samples that follow each other share the texts that are the same. */
function shareCells(map, before) {
    for (let i = 0; before && i < map.segments.length; i++)
        if (before.segments[i] && before.segments[i].cells === map.segments[i].cells) map.segments[i].cells = before.segments[i].cells;
}
async function askMap() {
    const pid = memory.chosen, list = chosenHistory(), sample = list[list.length - 1];
    if (memory.isAsked || !sample) return;
    memory.isAsked = true;
    try {
        const map = await askJson("GET", "/api/map" + query({ pid }));
        if (map) {
            shareCells(map, memory.lastMap);
            memory.lastMap = sample.map = map;
            if (pid === memory.chosen) drawMemory();
        }
    } catch (e) {
        if (e.status !== 404) throw e; /* it has ended */
    } finally {
        memory.isAsked = false;
    }
}

/* ---- who holds it ---- */
const SITES_MOST = 20;
function showSites(text = "", rows = []) {
    $("memory-sites-note").textContent = text;
    syncTable($("memory-sites"), "Call sites that hold most bytes", ["call site", "holds", "blocks", "at most", "allocations"], rows);
}
async function askSites() {
    const pid = memory.chosen, asked = ++memory.sites;
    $("memory-sites-ask").disabled = true;
    $("memory-sites-note").textContent = "Reading the trace of the process \u2026";
    try {
        const report = await askJson("GET", "/api/sites" + query({ pid })), sites = report.call_sites.filter(s => s.live_at_end > 0);
        const told = sites.reduce((n, s) => n + s.live_at_end, 0);
        sites.sort((a, b) => b.live_at_end - a.live_at_end);
        if (pid === memory.chosen) showSites(report.call_sites.length ? "Stacks were recorded for " + bytes(told) + " of the " + bytes(report.all.live_at_end)
            + " that the trace has as live now" + (told < report.all.live_at_end ? "; USM_TRACE_STACKS=all records all of them." : ".")
            : "Process " + pid + " writes a trace without stacks: start it with USM_TRACE_STACKS=on as well.",
        sites.slice(0, SITES_MOST).map(s => [s.name, bytes(s.live_at_end), count(s.blocks_at_end), bytes(s.live_peak), count(s.allocations)]));
    } catch (e) {
        if (pid === memory.chosen) showSites(e.message[0].toUpperCase() + e.message.slice(1) + ".");
    }
    if (asked === memory.sites) $("memory-sites-ask").disabled = false;
}

/* ---- what is saved ---- */
const savedName = suffix => "memory-" + memory.chosen + suffix;
/* A map that is that of the sample before is left out. */
function savedSamples() {
    const isSame = (a, b) => a.segments.length === b.segments.length && a.segments.every((s, i) => s.cells === b.segments[i].cells && s.base === b.segments[i].base);
    let last = null;
    return shownHistory().map(({ time, process, map }) => {
        if (!map || last && isSame(map, last)) return { time, process };
        last = map;
        return { time, process, map };
    });
}
/* Counters in the form of Chrome's traces, which the Perfetto UI opens. */
function perfettoText() {
    const list = shownHistory(), p = list[0].process, events = [{ ph: "M", name: "process_name", pid: p.pid, args: { name: p.program } }];
    const add = (s, name, args) => events.push({ ph: "C", name, pid: p.pid, ts: s.time / 1000, args });
    for (const s of list) {
        for (const q of s.process.pools)
            add(s, poolName(q), { live: q.live, cached: q.thread_cached + q.depot_cached, reserved: q.reserved });
        for (const t of s.process.tags || []) add(s, "tag " + t.name, { live: t.live });
        for (const t of s.process.buffers ? s.process.buffers.tiers : []) add(s, "tier " + t.name, { used: t.used });
    }
    return JSON.stringify({ traceEvents: events, displayTimeUnit: "ms" });
}
/* A page of its own: the drawings, their script and the samples are in it, and it fetches nothing.  It is put
 * together as text: elements with styles would be subject to this page's policy once more. */
async function pageText() {
    const [drawCss, style, draw, drawing] = await Promise.all(["/draw.css", "/style.css", "/draw.js", "/memory_view.js"]
        .map(async path => (await ask("GET", path)).text()));
    const data = JSON.stringify(savedSamples()).replace(/</g, "\\u003c"), meta = fields => "<meta " + fields + ">\n";
    return "<!DOCTYPE html>\n<html lang=\"en\" data-state=\"loading\">\n<head>\n" + meta("charset=\"utf-8\"")
        + meta("name=\"viewport\" content=\"width=device-width, initial-scale=1\"")
        + meta("http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\"")
        + "<title>" + savedName("") + "</title>\n<style>" + drawCss + style + "</style>\n</head>\n<body>\n<main>" + $("memory-chosen").outerHTML
        + "</main>\n<div id=\"tip\"></div>\n<script type=\"application/json\" id=\"memory-data\">" + data + "</script>\n<script>" + draw + drawing
        + "startSaved();\n</script>\n</body>\n</html>\n";
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
    if (memoryView.isFrozen) return;
    drawMemory();
    if (there.has(memory.chosen)) askMap();
});
sections.memory = () => {
    const pick = e => { const tr = e.target.closest("tbody tr"); if (tr) chooseProcess(rowPid(tr)); };
    $("processes").addEventListener("click", pick);
    $("processes").addEventListener("keydown", e => { if (e.key === "Enter") pick(e); });
    $("memory-freeze").addEventListener("click", () => freeze(!memoryView.isFrozen));
    startView(() => { if (!memoryView.isFrozen) freeze(true); });
    $("memory-save").addEventListener("click", () => saveText(savedName(".json"), JSON.stringify(savedSamples())));
    $("memory-page").addEventListener("click", async () => saveText(savedName(".html"), await pageText()));
    $("memory-perfetto").addEventListener("click", () => saveText(savedName(".perfetto.json"), perfettoText()));
    $("memory-sites-ask").addEventListener("click", askSites);
    listTraces();
};
