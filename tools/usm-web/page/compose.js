/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The section Compose: an app of usm-run as a graph that is drawn.  The app is a Map (json.js), changed in
   place; its text is what is checked, saved and run.  fields.js has the fields of a node, run.js the run. */
"use strict";

const app = {
    path: "",         /* in the folder; "": it was never saved */
    map: new Map(),
    saved: "",        /* the text as it is in the file */
    text: "", at: [], /* of the map, and what stands in which line */
    places: [],       /* of nodes */
    isPlaced: false,  /* by the user: `view` is written */
    faults: [],       /* what the last check has said: { line, text, where } */
    undo: []
};
let view;

const nodesOf = () => Array.isArray(app.map.get("nodes")) ? app.map.get("nodes").filter(n => n instanceof Map) : [];
const nameOf = n => typeof n.get("name") === "string" ? n.get("name") : "";
const folderOf = path => path.includes("/") ? path.slice(0, path.lastIndexOf("/") + 1) : "";
/* A file's name as the app would write it. */
function relative(path) {
    const folder = folderOf(app.path);
    if (path.startsWith(folder)) return path.slice(folder.length);
    return "../".repeat(folder.split("/").length - 1) + path;
}
function edgesOf() {
    const numbers = new Map(nodesOf().map((n, i) => [nameOf(n), i])), edges = app.map.get("edges");
    return (Array.isArray(edges) ? edges : []).map(e => Array.isArray(e) ? [numbers.get(e[0]), numbers.get(e[1])] : [])
        .map(([from, to], k) => [from, to, k]).filter(([from, to]) => from !== undefined && to !== undefined);
}

/* ---- changes ---- */

/* Writes where the nodes are, if the user has moved any. */
function storePlaces() {
    app.map.delete("view");
    if (app.isPlaced)
        app.map.set("view", new Map(nodesOf().map((n, i) => [nameOf(n), app.places[i].map(v => new Raw(Math.round(v)))])));
}
/* The places that are stored, and others where there are none. */
function placesOf(map, nodes, edges) {
    const stored = map.get("view"), places = arrange(nodes.length, edges);
    const isPair = p => Array.isArray(p) && p.length === 2 && p.every(v => v instanceof Raw && Number.isFinite(+v.text));
    if (stored instanceof Map) nodes.forEach((n, i) => {
        const p = stored.get(nameOf(n));
        if (isPair(p)) places[i] = p.map(v => +v.text);
    });
    return places;
}
/* What GraphView draws of an app. */
function graphOf(map) {
    const nodes = (Array.isArray(map.get("nodes")) ? map.get("nodes") : []).filter(n => n instanceof Map);
    const numbers = new Map(nodes.map((n, i) => [nameOf(n), i]));
    const edges = (Array.isArray(map.get("edges")) ? map.get("edges") : []).map(e => [numbers.get(e[0]), numbers.get(e[1])])
        .filter(([from, to]) => from !== undefined && to !== undefined);
    return { nodes: nodes.map(n => ({ name: nameOf(n), kind: n.get("kind"), note: noteOf(n), isTemplate: isTemplate(n.get("kind")) })), edges, places: placesOf(map, nodes, edges) };
}
function loadPlaces() {
    app.isPlaced = app.map.get("view") instanceof Map;
    app.places = placesOf(app.map, nodesOf(), edgesOf());
}
function noteOf(n) {
    const parts = n.get("parts") || n.get("per_device");
    const data = n.get("data");
    if (n.get("kind") === "input" && data) {
        const pieces = Array.isArray(data) ? data : [data];
        return pieces.map(p => p instanceof Map ? [...p.keys()].find(k => k !== "type") : "?").join(" + ");
    }
    if (isTemplate(n.get("kind"))) {
        const stages = (Array.isArray(n.get("stages")) ? n.get("stages") : [n]).filter(s => s instanceof Map);
        const what = stages.flatMap((s, k) => [k ? undefined : s.get("in"), s.get("out")]).map(t => t instanceof Map ? t.get("type") : t).filter(t => typeof t === "string");
        return [n.get("kind"), n.get("template") || what.join(" \u2192 ")].filter(x => typeof x === "string" && x).join(" \u00b7 ");
    }
    return [n.get("kind"), n.get("kernel"), parts instanceof Raw ? "\u00d7 " + parts.text : ""].filter(x => typeof x === "string" && x).join(" \u00b7 ");
}
function redraw() {
    view.wrong = new Set(app.faults.filter(f => f.where && f.where[0] === "nodes").map(f => f.where[1]));
    view.set(nodesOf().map((n, i) => ({ name: nameOf(n), kind: n.get("kind"), note: noteOf(n), isTemplate: isTemplate(n.get("kind")), share: run.shares[i] })),
        edgesOf(), app.places);
    $("canvas-empty").hidden = nodesOf().length > 0;
}
/* After each change of the map. */
function changed(isUndo) {
    storePlaces();
    const { text, at } = formatApp(app.map);
    if (!isUndo && app.text && app.text !== text) app.undo.push(app.text);
    if (app.undo.length > 200) app.undo.shift();
    Object.assign(app, { text, at });
    if (document.activeElement !== $("text")) $("text").value = text;
    run.forget();
    redraw();
    showState();
    checkSoon();
}
function showState() {
    const isChanged = app.text !== app.saved;
    $("app-state").textContent = isChanged ? "not saved" : "saved";
    $("app-save").disabled = !isChanged && app.path !== "";
}
/* Takes a text as the app; throws with the line where it is no JSON. */
function take(text, isUndo) {
    const map = parseJson(text);
    if (!(map instanceof Map)) throw Object.assign(new Error("an app must be an object"), { line: 1 });
    app.map = map;
    loadPlaces();
    view.chosen = null;
    changed(isUndo);
    showFields();
}
function undo() {
    const text = app.undo.pop();
    if (text !== undefined) take(text, true);
}
const freeName = (wanted, has) => {
    let name = wanted;
    for (let k = 2; has(name); k++) name = wanted + k;
    return name;
};
function addNode(fields, place) {
    const taken = new Set(nodesOf().map(nameOf)), node = new Map(Object.entries(fields));
    node.set("name", freeName(node.get("name"), name => taken.has(name)));
    if (!Array.isArray(app.map.get("nodes"))) app.map.set("nodes", []);
    if (!Array.isArray(app.map.get("edges"))) app.map.set("edges", []);
    app.map.get("nodes").push(node);
    const box = $("canvas").getBoundingClientRect(), n = app.places.length;
    app.places.push(place || [(box.width / 3 - view.x) / view.scale + 16 * (n % 8), (box.height / 3 - view.y) / view.scale + 40 * (n % 8)].map(Math.round));
    app.isPlaced = true;
    changed();
    view.choose({ node: n });
}
function connect(from, to) {
    const nodes = nodesOf(), edges = app.map.get("edges");
    if (edges.some(e => e[0] === nameOf(nodes[from]) && e[1] === nameOf(nodes[to]))) return;
    edges.push([nameOf(nodes[from]), nameOf(nodes[to])]);
    changed();
    showFields();
}
function remove(what) {
    if (what.edge !== undefined) {
        app.map.get("edges").splice(edgesOf()[what.edge][2], 1);
    } else {
        const name = nameOf(nodesOf()[what.node]);
        app.map.get("nodes").splice(what.node, 1);
        app.places.splice(what.node, 1);
        if (Array.isArray(app.map.get("edges")))
            app.map.set("edges", app.map.get("edges").filter(e => !e.includes(name)));
    }
    changed();
    view.choose(null);
}
function rename(i, name) {
    const old = nameOf(nodesOf()[i]);
    nodesOf()[i].set("name", name);
    for (const e of app.map.get("edges") || [])
        for (let k = 0; k < 2; k++) if (e[k] === old) e[k] = name;
}

/* ---- checks ---- */
let checkTimer = 0, checkNumber = 0;
function checkSoon() {
    clearTimeout(checkTimer);
    checkTimer = setTimeout(check, 200);
}
/* "-:7: reason" for each mistake; what else there is belongs to no line. */
function takeFaults(messages) {
    app.faults = messages.split("\n").filter(Boolean).map(text => {
        const m = /^-:(\d+): (.*)$/.exec(text), line = m ? +m[1] : 0;
        return { line, text: m ? m[2] : text.replace(/^usm-run: /, ""), where: app.at[line] };
    });
}
async function check() {
    const number = ++checkNumber;
    if (!nodesOf().length) { showFaults(""); return; }
    try {
        const said = await askJson("POST", "/api/check" + query({ path: app.path || "app.json" }), app.text);
        if (number !== checkNumber) return; /* it has been changed since */
        takeFaults(said.is_ok ? "" : said.messages || "usm-run " + said.end);
        showFaults(said.is_ok ? "It can run." : "");
    } catch (e) {
        if (number !== checkNumber) return;
        app.faults = [{ line: 0, text: e.message }];
        showFaults("");
    }
}
function showFaults(good) {
    const box = $("check");
    box.replaceChildren();
    if (good) element("span", good, box).className = "good";
    app.faults.slice(0, 50).forEach(f => {
        const b = element("button", (f.line ? "line " + f.line + ": " : "") + f.text, element("div", undefined, box));
        b.className = "fault";
        b.addEventListener("click", () => {
            if (f.where && f.where[0] === "nodes" && f.where.length > 1) view.choose({ node: f.where[1] });
            else showText(true);
        });
    });
    if (app.faults.length > 50) element("div", "and " + count(app.faults.length - 50) + " more", box);
    box.dataset.state = good ? "good" : app.faults.length ? "wrong" : "";
    redraw();
    markFields();
}

/* ---- files ---- */
async function listFiles() {
    const { files } = await askJson("GET", "/api/files"), list = $("app-list");
    list.replaceChildren();
    element("option", app.path || "(new)", list).value = app.path;
    for (const f of files)
        if (f.path.endsWith(".json") && f.path !== app.path) element("option", f.path, list).value = f.path;
    const samples = element("optgroup", undefined, list);
    samples.label = "samples, to be copied here";
    for (const name of sampleApps) element("option", name, samples).value = "sample:" + name;
    list.value = app.path;
    $("files").replaceChildren(...files.slice(0, 1000).map(f => { const o = element("option"); o.value = relative(f.path); return o; }));
    const sources = files.filter(f => f.path.endsWith(".cl")).slice(0, 50);
    const found = await Promise.all(sources.map(async f => [f.path, await (await ask("GET", "/api/file" + query({ path: f.path }))).text()]));
    showPalette(found);
    return files;
}
async function openApp(path) {
    const text = await (await ask("GET", "/api/file" + query({ path }))).text();
    app.path = path;
    app.undo = [];
    app.text = "";
    $("text").value = text;
    run.forget();
    try {
        take(text);
        app.saved = app.text === text ? text : app.text;
        showState();
        view.whole();
    } catch (e) {
        app.map = new Map();
        app.faults = [{ line: e.line, text: e.message }];
        showFaults("");
        showText(true);
    }
}
const sampleApps = ["integral", "md5"];
/* Copies a sample to the folder, unless it is there, and opens it. */
async function openSample(name) {
    for (const file of [name + ".cl", name + ".json"]) {
        const text = await (await fetch("/samples/" + file)).text();
        await ask("PUT", "/api/file" + query({ path: file }), text, { "If-None-Match": "*" })
            .catch(e => { if (e.status !== 409) throw e; });
    }
    await openApp(name + ".json");
    await listFiles();
}
async function save(path) {
    try {
        await ask("PUT", "/api/file" + query({ path }), app.text, path === app.path ? {} : { "If-None-Match": "*" });
        app.path = path;
        app.saved = app.text;
        notice("", "save");
        showState();
        await listFiles();
    } catch (e) {
        notice(e.message, "save");
    }
}
async function saveAs() {
    const path = await askText("Save in the folder as", app.path || "app.json");
    if (path) await save(path);
}
function newApp() {
    Object.assign(app, { path: "", saved: "", text: "", undo: [], faults: [] });
    take("{\"name\": \"\", \"kernels\": {}, \"nodes\": [], \"edges\": []}");
    listFiles();
}
function showText(wanted) {
    $("text").hidden = !wanted;
    $("app-text").setAttribute("aria-pressed", wanted);
    if (wanted) $("text").focus();
}

/* ---- the palette ---- */
const dataItems = [["Numbers", { numbers: [new Raw(0)], type: "f32" }], ["Text", { text: "" }], ["Hex digits", { hex: "00" }], ["File", { file: "data.bin" }],
    ["Value of a data server", { from: "valkey:key" }]];
function kernelNode(path, name) {
    const kernels = app.map.get("kernels") instanceof Map ? app.map.get("kernels") : app.map.set("kernels", new Map()).get("kernels");
    const file = relative(path);
    let kernel = [...kernels].find(([, k]) => k instanceof Map && k.get("file") === file)?.[0];
    if (kernel === undefined) {
        kernel = freeName(path.slice(path.lastIndexOf("/") + 1).replace(/\.cl$/, ""), k => kernels.has(k));
        kernels.set(kernel, new Map([["file", file]]));
    }
    const own = { partitionData: ["cut", "partition", { part_size: new Raw(16), parts: new Raw(8) }],
        mergeData: ["merge", "merge", { out_size: new Raw(4) }], processData: ["work", "process", { out_size: new Raw(4) }] };
    const [wanted, kind, rest] = own[name] || [name, "process", { function: name, out_size: new Raw(4) }];
    return { name: wanted, kind, kernel, ...rest };
}
function paletteItem(list, title, note, make) {
    const b = element("button", title, element("li", undefined, list));
    if (note) element("small", note, b);
    b.draggable = true;
    b.addEventListener("click", () => addNode(make()));
    b.addEventListener("dragstart", e => {
        paletteItem.dragged = make;
        e.dataTransfer.setData("text/plain", title);
        e.dataTransfer.effectAllowed = "copy";
    });
}
function showPalette(sources) {
    $("palette-data").replaceChildren();
    $("palette-kernels").replaceChildren();
    $("palette-templates").replaceChildren();
    for (const [kind, t] of Object.entries(templates))
        paletteItem($("palette-templates"), kind, t.gives, () => Object.fromEntries([["name", kind], ["kind", kind], ...beginTemplate(kind)]));
    for (const [title, data] of dataItems)
        paletteItem($("palette-data"), title, "", () => ({ name: "data", kind: "input", data: [new Map(Object.entries(structuredCloneOf(data)))] }));
    for (const [path, text] of sources)
        for (const m of text.matchAll(/\b(?:__)?kernel\s+void\s+(\w+)\s*\(/g))
            paletteItem($("palette-kernels"), m[1], path, () => kernelNode(path, m[1]));
    if (!sources.length) element("li", "There is no .cl file in the folder.", $("palette-kernels")).className = "soft";
}
/* structuredClone() would take the class from a Raw. */
const structuredCloneOf = fields => Object.fromEntries(Object.entries(fields).map(([k, v]) => [k, Array.isArray(v) ? [...v] : v]));

/* ---- begin ---- */
function listenCanvas() {
    const canvas = $("canvas");
    canvas.addEventListener("dragover", e => { if (paletteItem.dragged) e.preventDefault(); });
    canvas.addEventListener("drop", e => {
        e.preventDefault();
        const [x, y] = view.pointOf(e), make = paletteItem.dragged;
        paletteItem.dragged = null;
        if (make) addNode(make(), [Math.round(x - NODE_WIDTH / 2), Math.round(y - NODE_HEIGHT / 2)]);
    });
    $("text").addEventListener("input", () => {
        try {
            take($("text").value);
        } catch (e) {
            app.faults = [{ line: e.line, text: e.message }];
            showFaults("");
        }
    });
    addEventListener("keydown", e => {
        if ($("compose").hidden || !(e.ctrlKey || e.metaKey)) return;
        if (e.key === "s") { e.preventDefault(); (app.path ? save(app.path) : saveAs()); }
        if (e.key === "z" && e.target !== $("text") && !/INPUT|TEXTAREA/.test(e.target.tagName)) { e.preventDefault(); undo(); }
    });
    addEventListener("beforeunload", e => { if (app.text !== app.saved && nodesOf().length) e.preventDefault(); });
}
function beginCompose() {
    view = new GraphView($("canvas"), {
        choose: showFields,
        move: (i, place, isEnd) => {
            app.places[i] = place;
            app.isPlaced = true;
            if (isEnd) changed(); else redraw();
        },
        connect, remove,
        open: () => $("inspector").querySelector("input, select, textarea")?.focus()
    });
    listenCanvas();
    $("app-list").addEventListener("change", e => e.target.value.startsWith("sample:") ? openSample(e.target.value.slice(7)) : openApp(e.target.value));
    $("app-new").addEventListener("click", newApp);
    $("app-save").addEventListener("click", () => app.path ? save(app.path) : saveAs());
    $("app-save-as").addEventListener("click", saveAs);
    $("app-whole").addEventListener("click", () => view.whole());
    $("app-text").addEventListener("click", () => showText($("text").hidden));
    $("app-arrange").addEventListener("click", () => {
        app.isPlaced = false;
        app.places = arrange(nodesOf().length, edgesOf());
        changed();
        view.whole();
    });
    run.begin();
    newApp();
    listFiles().then(files => {
        const first = files.find(f => f.path === "app.json") || files.find(f => f.path.endsWith(".json"));
        if (first && app.text === formatApp(app.map).text && !nodesOf().length) return openApp(first.path).then(listFiles);
    });
    $("compose").dataset.state = "drawn";
}
sections.compose = beginCompose;
