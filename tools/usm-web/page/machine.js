/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The section Machine: processors, caches, memories and links as boxes within boxes, devices, limits. */
"use strict";

function box(kind, title, note, parent) {
    const e = element("div", undefined, parent), head = element("header", undefined, e);
    e.className = "box " + kind;
    element("b", title, head);
    if (note) element("span", note, head);
    return e;
}
function inside(parent) {
    const e = element("div", undefined, parent);
    e.className = "inside";
    return e;
}
function pairs(list, parent) {
    const e = element("dl", undefined, parent);
    e.className = "pairs";
    for (const [name, value] of list) {
        if (value === undefined || value === null || value === "") continue;
        element("dt", name, e);
        element("dd", String(value), e);
    }
    return e;
}
/* A bar; set(share, text) fills it. */
function meter(label, parent) {
    const e = element("div", undefined, parent), fill = element("i", undefined, e), text = element("span", "", e);
    e.className = "meter";
    e.setAttribute("role", "meter");
    e.setAttribute("aria-label", label);
    return (share, said) => {
        fill.style.setProperty("--use", 100 * Math.min(share, 1) + "%");
        text.textContent = said;
        e.setAttribute("aria-valuenow", share.toFixed(3));
        e.setAttribute("aria-valuetext", said);
    };
}

/* "0-3,8" */
function cpuList(text) {
    const cpus = new Set();
    for (const part of text.split(",").filter(Boolean)) {
        const [from, to] = part.split("-").map(Number);
        for (let c = from; c <= (to === undefined ? from : to); c++) cpus.add(c);
    }
    return cpus;
}

const processorBoxes = new Map();
let memoryMeter = () => {};
const deviceNotes = new Map(); /* by selector */

function drawCpu(cpu, parent) {
    const e = element("div", String(cpu.number), parent);
    e.className = "pu";
    e.title = "processor " + cpu.number + ", core " + cpu.core;
    processorBoxes.set(cpu.number, e);
}
const cacheSize = text => text.endsWith("K") ? bytes(1024 * parseInt(text, 10)) : text; /* "2048K" */

/* Caches from the largest down, each around the processors that share it. */
function drawCaches(cpus, level, parent) {
    if (level === 0) {
        const cores = groupBy(cpus, c => c.core);
        for (const [core, list] of cores) {
            const b = box("core", "core " + core, "", parent), within = inside(b);
            for (const cpu of list) drawCpu(cpu, within);
        }
        return;
    }
    const left = new Set(cpus);
    for (const cpu of cpus) {
        if (!left.has(cpu)) continue;
        const cache = cpu.caches.find(c => c.level === level);
        const shared = cache ? cpus.filter(c => left.has(c) && cpuList(cache.cpus).has(c.number)) : [cpu];
        shared.forEach(c => left.delete(c));
        if (!cache) drawCaches(shared, level - 1, parent);
        else drawCaches(shared, level - 1, inside(box("cache", "L" + level, cacheSize(cache.size), parent)));
    }
}
function groupBy(list, key) {
    const groups = new Map();
    for (const x of list) groups.set(key(x), [...groups.get(key(x)) || [], x]);
    return groups;
}
const vendors = { "0x8086": "Intel", "0x10de": "NVIDIA", "0x1002": "AMD", "0x1022": "AMD", "0x15b3": "Mellanox",
    "0x1af4": "virtio", "0x144d": "Samsung", "0x1d0f": "Amazon" };
function pciBox(kind, d, link, parent) {
    const b = box("pci", kind, d.address, parent);
    pairs([["vendor", vendors[d.vendor] || d.vendor], ["device", d.name || d.device], ["link", link]], b);
    return b;
}
function drawPci(d, parent) {
    pciBox(d.kind, d, d.speed && !d.speed.startsWith("Unknown") ? d.speed.replace(" PCIe", "") + " \u00d7 " + d.width : "", parent);
}
/* ---- as hwloc sees it: a tree, in which memory and devices hang beside what is close to them ---- */
const PARTS = { /* by type of object: the box of one, and how its label is told */
    Package: o => ["package", "package " + (o.number || 0), o.name],
    Core: o => ["core", "core " + o.number],
    Bridge: o => ["bridge", o.kind === "HostBridge" ? "host bridge" : "PCI bridge"],
    OSDev: o => ["osdev", o.name, o.kind],
    Group: o => ["group", "group"],
    Die: o => ["group", "die " + o.number]
};
function boxOf(o, parent) {
    if (/Cache$/.test(o.type)) return box("cache", o.kind, bytes(o.size), parent);
    if (o.type === "PCIDev") return pciBox(o.purpose, o, o.link ? o.link + " GB/s" : "", parent);
    const [kind, title, note] = (PARTS[o.type] || (() => ["group", o.kind]))(o);
    return box(kind, title, note, parent);
}
function drawNumaNode(o, isAlone, parent) {
    const m = box("memory", "NUMA node " + o.number, bytes(o.size), parent);
    if (isAlone) memoryMeter = meter("memory in use", m);
}
const countOf = (o, type) => (o.type === type ? 1 : 0) + ["memory", "children", "devices"].flatMap(k => o[k] || []).reduce((n, c) => n + countOf(c, type), 0);
function drawObject(o, isAlone, parent) {
    if (o.type === "PU") return drawCpu({ number: o.number, core: o.core }, parent);
    const b = boxOf(o, parent);
    drawParts(o, isAlone, b);
    return b;
}
function drawParts(o, isAlone, b) {
    for (const m of o.memory || []) drawNumaNode(m, isAlone, b);
    for (const list of [o.children, o.devices].filter(Boolean)) {
        const within = inside(b);
        for (const c of list) drawObject(c.type === "PU" ? { ...c, core: o.number } : c, isAlone, within);
    }
}
function drawTree(machine) {
    const b = element("div", undefined, $("topology"));
    b.className = "tree";
    b.setAttribute("role", "group");
    b.setAttribute("aria-label", "machine of " + ["Package", "NUMANode", "Core", "PU", "PCIDev"].map(type => count(countOf(machine, type)) + " "
        + { Package: "packages", NUMANode: "NUMA nodes", Core: "cores", PU: "processors", PCIDev: "devices on PCI" }[type]).join(", "));
    drawParts(machine, countOf(machine, "NUMANode") === 1, b);
}

function drawNodes(t) {
    const top = $("topology");
    const nodes = t.nodes.length ? t.nodes : [{ number: 0, memory: t.memory, cpus: "", distances: "" }];
    for (const node of nodes) {
        const own = cpuList(node.cpus), cpus = t.cpus.filter(c => !node.cpus || own.has(c.number));
        const b = box("node-box", "NUMA node " + node.number, node.distances ? "distances " + node.distances : "", top);
        const m = box("memory", "memory", bytes(node.memory), b);
        if (nodes.length === 1) memoryMeter = meter("memory in use", m);
        for (const [number, list] of groupBy(cpus, c => c.package)) {
            const p = box("package", "package " + Math.max(number, 0), count(list.length) + (list.length === 1 ? " processor" : " processors"), b);
            drawCaches(list, 3, inside(p));
        }
        const attached = inside(b);
        t.pci.filter(d => d.node === node.number || (d.node < 0 && node === nodes[0])).forEach(d => drawPci(d, attached));
    }
}
function drawTopology(t) {
    if (t.tree) drawTree(t.tree[0]);
    else drawNodes(t);
    const facts = [["Host", t.host], ["Memory", bytes(t.memory), "that programs may use"],
        ["Processors", count(t.processors), "that programs may use"], ["Folder", t.folder]];
    for (const [name, value, note] of facts) {
        const d = element("div", undefined, $("machine-facts"));
        element("dt", name, d);
        const dd = element("dd", value, d);
        if (note) { element("br", undefined, dd); element("small", note, dd); }
    }
}

function drawDevice(d) {
    const b = box("device", d.name, d.selector + ", " + d.type, $("devices"));
    const moves = d.moves_data === "yes" ? "" : "moves no data: " + (d.moves_data_text || "not asked");
    if (d.index === null) element("p", "USM_DEVICE_SELECTOR leaves it out", b).className = "soft";
    if (moves && d.index !== null) element("p", moves, b).className = "bad";
    const m = meter("memory of " + d.selector, b), free = d.memory.free;
    m(free === null || !d.memory.total ? 0 : 1 - free / d.memory.total,
        free === null ? bytes(d.memory.total || 0) + ", its driver does not tell what is free"
            : bytes(d.memory.total - free) + " of " + bytes(d.memory.total) + " in use");
    deviceNotes.set(d.selector, element("small", "", b));
    pairs([["backend", d.backend + ", " + d.platform], ["driver", d.driver_version],
        ["compute units", count(d.compute_units)], ["work-group", "up to " + count(d.max_work_group_size)],
        ["local memory", bytes(d.local_memory_size)],
        ["allocation", d.memory.max_allocation === null ? "" : "up to " + bytes(d.memory.max_allocation)]], b);
    if (d.sub_devices.length) {
        const parts = inside(b);
        for (const s of d.sub_devices)
            box("part", s.selector, count(s.compute_units) + (s.compute_units === 1 ? " unit" : " units"), parts);
    }
    const list = element("ul", undefined, b);
    list.className = "aspects";
    for (const a of d.aspects) element("li", a.replaceAll("_", " "), list);
}
function drawLimits(info) {
    const table = element("table", undefined, $("limits")), body = element("tbody", undefined, table);
    const row = (name, value, note) => {
        const tr = element("tr", undefined, body);
        element("td", name, tr);
        for (const text of [value, note]) element("td", text, tr).className = "text";
    };
    for (const t of info.spill)
        row("tier " + t.transport, t.config + (t.total ? ", " + bytes(t.available) + " of " + bytes(t.total) + " free" : ""), t.text || t.state);
    for (const s of info.settings.filter(s => s.origin !== "default" || /LIMIT|SPILL$/.test(s.variable)))
        row(s.variable, s.value || "not set", s.help);
    for (const b of info.backends.filter(b => b.reason)) row("backend " + b.name, b.state, b.reason);
}
async function drawDevices() {
    const info = await askJson("GET", "/api/devices");
    $("devices-note").textContent = info.error ? info.error.story : "";
    $("devices-note").hidden = !info.error;
    for (const d of info.devices.concat(info.not_selected)) drawDevice(d);
    drawLimits(info);
    $("machine").dataset.state = "drawn";
}

listen("use", use => {
    for (const [number, busy] of use.cpus) {
        const e = processorBoxes.get(number);
        if (!e) continue;
        e.style.setProperty("--use", (100 * busy).toFixed(0) + "%");
        e.setAttribute("aria-label", "processor " + number + ", " + percent(busy) + " busy");
    }
    memoryMeter(1 - use.available / use.total, bytes(use.total - use.available) + " of " + bytes(use.total) + " in use");
});
/* What the processes that use libusm hold on each device. */
listen("processes", state => {
    const held = new Map();
    for (const p of state.processes) for (const d of p.devices || []) {
        const h = held.get(d.device) || { reserved: 0, processes: 0, limit: 0 };
        held.set(d.device, { reserved: h.reserved + d.reserved, processes: h.processes + 1, limit: Math.max(h.limit, d.limit) });
    }
    for (const [selector, e] of deviceNotes) {
        const h = held.get(selector);
        e.textContent = h ? bytes(h.reserved) + " held by " + count(h.processes) + (h.processes === 1 ? " process" : " processes") + " through libusm"
            + (h.limit ? ", limit " + bytes(h.limit) : "") : "held by no process through libusm";
    }
});
/* ---- hosts: those of processes that are ranks of a job ---- */
function drawRank(p, parent) {
    const b = box("rank", "rank " + p.rank + " of " + p.ranks, p.program + ", process " + p.pid, parent);
    element("p", bytes(p.live) + " live, " + bytes(p.reserved) + " reserved", b);
    for (const d of (p.devices || []).filter(d => d.reserved || d.commands))
        element("small", d.device + ": " + bytes(d.reserved) + ", " + count(d.commands) + (d.commands === 1 ? " command" : " commands"), element("div", undefined, b));
}
listen("processes", state => {
    const hosts = groupBy(state.processes.filter(p => p.ranks).sort((a, b) => a.rank - b.rank), p => p.host);
    $("hosts").replaceChildren(...[...hosts].map(([host, ranks]) => {
        const b = box("node-box host", host, count(ranks.length) + (ranks.length === 1 ? " rank" : " ranks"));
        const within = inside(b);
        for (const p of ranks) drawRank(p, within);
        return b;
    }));
    $("hosts-part").hidden = hosts.size === 0;
});
sections.machine = () => {
    askJson("GET", "/api/topology").then(drawTopology);
    drawDevices().catch(e => { $("devices-note").textContent = e.message; });
};
