/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The fields of the chosen node, with their types and limits, as usm-run has them.  What it does not know is
   shown as JSON, and kept. */
"use strict";

const kinds = ["input", "partition", "process", "expandable", "merge"];
/* What a body has and gives, one line for each body of the kind; what a new node has. */
const templates = {
    map: { gives: "an element for each", bodies: ["x, i: an output"], begin: { in: "f32", out: "f32", body: "return x;" } },
    map_reduce: { gives: "one element", bodies: ["x, i: an output", "a, b: both joined"],
        begin: { in: "f32", out: "f32", body: ["return x;", "return a + b;"] } },
    stencil: { gives: "an element for each", bodies: ["USM_AT(dx, dy): an output"],
        begin: { in: "f32", out: "f32", radius: new Raw(1), body: "return 0.5f * (USM_AT(0, -1) + USM_AT(0, 1));" } },
    scan: { gives: "all up to each, joined", bodies: ["a, b: both joined"], begin: { in: "f32", body: "return a + b;" } },
    search: { gives: "the first index, or -1", bodies: ["x, i: is it?"], begin: { in: "f32", body: "return x > 0.0f;" } },
    master_worker: { gives: "an element for each, uneven work", bodies: ["x, i: an output"],
        begin: { in: "f32", out: "f32", body: "return x;" } },
    iterate: { gives: "an element for each, settled", bodies: ["USM_AT(dx, dy): an output", "before, now: has it settled?"],
        begin: { in: "f32", radius: new Raw(1), steps: new Raw(1000), body: ["return 0.5f * (USM_AT(0, -1) + USM_AT(0, 1));", "return fabs(now - before) < 0.001f;"] } },
    pipeline: { gives: "maps behind each other", bodies: [], begin: { stages: ["return x;", "return x;"]
        .map(body => new Map([["in", "f32"], ["out", "f32"], ["body", body]])) } }
};
const isTemplate = kind => typeof kind === "string" && Object.hasOwn(templates, kind);
/* The members of a new node, which are its own. */
const beginTemplate = kind => Object.entries(templates[kind].begin).map(([k, v]) => [k, parseJson(inlineJson(v))]);
const types = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"];
const sizeLimit = "bytes, 1 to 4294967295";
const fieldTable = {
    function: { form: "text", note: "of the kernel; without it the one of the kind" },
    out_size: { form: "number", note: sizeLimit + ", of the block it gives", of: ["process", "expandable", "merge"] },
    part_size: { form: "number", note: sizeLimit + ", of each part", of: ["partition"] },
    parts: { form: "number", note: "1 to 1048576; or per_device", of: ["partition"] },
    per_device: { form: "number", note: "parts for each device, 1 to 65536", of: ["partition"] },
    global: { form: "sizes", note: "work-items, 1 to 3 numbers" },
    local: { form: "sizes", note: "of a work-group, as many numbers as global" },
    work: { form: "number", note: "what a launch costs beside others, above 0" }
};
const typeNote = "a type of numbers, or {\"type\": name in OpenCL C, \"bytes\": size}";
const withRows = ["stencil", "iterate"];
/* The fields of templates; `text` ones are for a body in the app, `of` as above, but without it: of those with
 * bodies of their own. */
const templateTable = {
    in: { form: "type", note: typeNote, text: true },
    out: { form: "type", note: typeNote, text: true, of: ["map", "map_reduce", "stencil", "master_worker"] },
    head: { form: "text", note: "a file with declarations, in OpenCL C", text: true },
    radius: { form: "number", note: "rows that a body reads above and below its own", text: true, of: withRows },
    width: { form: "number", note: "elements of a row", of: withRows },
    steps: { form: "number", note: "how often; of iterate, at most", of: withRows },
    grain: { form: "number", note: "elements that a worker takes at a time", of: ["master_worker"] },
    count: { form: "number", note: "elements, where there is no 'in'", of: ["map", "map_reduce", "search", "master_worker"] },
    param_type: { form: "type", note: "of p, where 'param' does not say it", text: true },
    batch: { form: "number", note: "elements that a stage takes at a time", of: ["pipeline"] },
    work: { ...fieldTable.work, of: Object.keys(templates) }
};
const hasField = (kind, key) => (templateTable[key].of || Object.keys(templates).filter(k => k !== "pipeline")).includes(kind);

function field(label, input, note, key) {
    const e = element("label", label);
    e.dataset.field = key || label;
    e.append(input);
    if (note) element("small", note, e);
    $("inspector").append(e);
    return input;
}
function makeInput(value, onChange) {
    const e = element("input");
    e.value = value;
    e.spellcheck = false;
    e.autocomplete = "off";
    e.addEventListener("change", () => onChange(e.value.trim()));
    return e;
}
function makeSelect(values, value, onChange) {
    const e = element("select");
    for (const v of values.includes(value) || value === undefined ? values : [value, ...values]) element("option", v, e).value = v;
    e.value = value === undefined ? "" : value;
    e.addEventListener("change", () => onChange(e.value));
    return e;
}
/* What a text stands for: a number, numbers, JSON, or, where it is none of them, the text, of which the check
 * will say what is wrong. */
function valueOf(text, form) {
    if (form === "text" || (form === "type" && !text.startsWith("{"))) return text;
    if (form === "sizes" && /^\d+(?:[\s,x\u00d7]+\d+)+$/.test(text)) return text.split(/[\s,x\u00d7]+/).map(n => new Raw(n));
    try { return parseJson(text); } catch { return text; }
}
function textOf(v, form) {
    if (v === undefined) return "";
    if (v instanceof Raw) return v.text;
    if (form === "sizes" && Array.isArray(v)) return v.map(n => n instanceof Raw ? n.text : inlineJson(n)).join(", ");
    return typeof v === "string" ? v : inlineJson(v);
}
/* Sets a member, or removes it where the text is empty. */
function setMember(map, key, text, form) {
    if (text === "") map.delete(key);
    else map.set(key, valueOf(text, form));
    changed();
}
function makeArea(value, onChange) {
    const e = element("textarea");
    e.value = value;
    e.spellcheck = false;
    e.className = "code";
    e.rows = Math.min(12, 1 + value.split("\n").reduce((n, line) => n + 1 + Math.floor(line.length / 30), 0));
    e.addEventListener("change", () => onChange(e.value));
    return e;
}

/* ---- data of inputs ---- */
function showPiece(pieces, i, store) {
    const p = pieces[i] instanceof Map ? pieces[i] : new Map(), forms = ["numbers", "text", "hex", "file", "from"];
    const form = forms.find(f => p.has(f)), row = element("div");
    row.className = "piece";
    const begin = { numbers: [["numbers", [new Raw(0)]], ["type", "f32"]], text: [["text", ""]], hex: [["hex", "00"]], file: [["file", "data.bin"]], from: [["from", "valkey:key"]] };
    const again = () => { store(); showFields(view.chosen); };
    const pick = makeSelect(forms, form, f => { pieces[i] = new Map(begin[f]); again(); });
    pick.setAttribute("aria-label", "kind of piece " + (i + 1));
    row.append(pick);
    const value = p.get(form), area = element(form === "file" || form === "from" ? "input" : "textarea", undefined, row);
    if (form === "file") area.setAttribute("list", "files");
    area.value = form === "numbers" && Array.isArray(value) ? value.map(v => textOf(v)).join(", ") : textOf(value);
    area.rows = Math.min(6, 1 + Math.floor(area.value.length / 30));
    area.setAttribute("aria-label", "piece " + (i + 1));
    area.addEventListener("change", () => {
        p.set(form, form === "numbers" ? area.value.split(/[\s,]+/).filter(Boolean).map(v => valueOf(v)) : area.value);
        store();
    });
    if (form === "from") element("small", "a server, a colon, a key", row);
    if (form === "numbers") {
        const type = makeSelect(types, p.get("type"), t => { p.set("type", t); store(); });
        type.setAttribute("aria-label", "type of piece " + (i + 1));
        row.append(type);
    }
    const drop = element("button", "Remove piece", row);
    drop.addEventListener("click", () => { pieces.splice(i, 1); again(); });
    return row;
}
/* key: "data", or "param" of a template. */
function showData(node, key) {
    const data = node.get(key), pieces = Array.isArray(data) ? data : data === undefined ? [] : [data];
    const store = () => {
        if (key === "param" && !pieces.length) node.delete(key);
        else node.set(key, pieces.length === 1 && !Array.isArray(data) ? pieces[0] : pieces);
        changed();
    };
    const box = element("div", undefined, $("inspector"));
    box.dataset.field = key;
    element("h3", key === "data" ? "Data" : "Parameter p", box);
    pieces.forEach((_, i) => box.append(showPiece(pieces, i, store)));
    element("button", "Add a piece", box).addEventListener("click", () => {
        pieces.push(new Map([["numbers", [new Raw(0)]], ["type", "f32"]]));
        store();
        showFields(view.chosen);
    });
}

/* ---- outputs and edges ---- */
function showOutput(node) {
    const out = node.get("output") instanceof Map ? node.get("output") : new Map();
    const set = (key, text) => {
        if (text === "") out.delete(key);
        else out.set(key, key !== "print" || /^\w+$/.test(text) ? text : text.split(/[\s,]+/).filter(Boolean));
        if (out.size) node.set("output", out); else node.delete("output");
        changed();
    };
    const print = out.get("print");
    field("print the result as", makeInput(Array.isArray(print) ? print.join(", ") : textOf(print), t => set("print", t)),
        "text, hex, " + types.join(", ") + "; several: each but the last for one number", "output");
    field("write it to", makeInput(textOf(out.get("file")), t => set("file", t)), "a file in the folder", "file");
    field("store it as", makeInput(textOf(out.get("to")), t => set("to", t)), "a value of a data server: a server, a colon, a key", "to");
}
function showEdges(i) {
    const nodes = nodesOf(), edges = edgesOf(), box = element("div", undefined, $("inspector"));
    element("h3", "Reads", box);
    for (const [from, to, k] of edges.filter(e => e[1] === i)) {
        const b = element("button", nameOf(nodes[from]) + " \u2715", box);
        b.setAttribute("aria-label", "no longer read " + nameOf(nodes[from]));
        b.addEventListener("click", () => { remove({ edge: edges.findIndex(e => e[2] === k) }); view.choose({ node: to }); });
    }
    const read = new Set(edges.filter(e => e[1] === i).map(e => e[0]));
    const others = nodes.map((n, k) => k).filter(k => k !== i && !read.has(k)).slice(0, 500);
    const select = makeSelect(["", ...others.map(k => nameOf(nodes[k]))], "", name => {
        connect(nodes.findIndex(n => nameOf(n) === name), i);
    });
    select.setAttribute("aria-label", "read another node");
    box.append(select);
}

/* ---- templates ---- */

/* A node that becomes a template of another kind keeps the fields that both have, and a body that both
 * understand. */
function setKind(node, kind) {
    const bodies = k => isTemplate(k) ? templates[k].bodies.join() : "";
    const isKept = bodies(kind) === bodies(node.get("kind"));
    node.set("kind", kind);
    if (isTemplate(kind)) {
        for (const key of Object.keys(templateTable)) if (!hasField(kind, key)) node.delete(key);
        for (const key of kind === "pipeline" ? ["body", "library", "template", "param"] : ["stages"]) node.delete(key);
        for (const [key, v] of beginTemplate(kind))
            if (!node.has("library") && (!node.has(key) || (key === "body" && !isKept))) node.set(key, v);
    }
    changed();
    showFields(view.chosen);
}
/* Where the code is: in the app, or a library that has a template.  node: or a stage, a map. */
function setCode(node, kind, isLibrary) {
    if (isLibrary) {
        for (const key of ["body", ...Object.keys(templateTable).filter(k => templateTable[k].text)]) node.delete(key);
        node.set("library", "templates.so");
        node.set("template", nameOf(node) || kind);
    } else {
        for (const key of ["library", "template"]) node.delete(key);
        for (const [key, v] of beginTemplate(kind)) if (!node.has(key)) node.set(key, v);
    }
    changed();
    showFields(view.chosen);
}
function showBodies(node, kind) {
    const body = node.get("body"), wanted = templates[kind].bodies;
    const bodies = Array.isArray(body) ? body : [body];
    const n = Math.max(bodies.length, wanted.length);
    for (let k = 0; k < n; k++)
        field(n > 1 ? "body " + (k + 1) : "body", makeArea(textOf(bodies[k]), t => {
            const all = Array.from({ length: n }, (_, j) => j === k ? t : bodies[j] === undefined ? "" : bodies[j]);
            node.set("body", Array.isArray(body) || n > 1 ? all : all[0]);
            changed();
            showFields(view.chosen);
        }), wanted[k] || "this kind has no such body", "body");
}
/* isStage: it is one of a pipeline. */
function showCode(node, kind, isStage) {
    const isLibrary = node.has("library"), own = ["in", "out", "head", "param_type"];
    const code = makeSelect(["in the app", "in a library"], isLibrary ? "in a library" : "in the app", v => setCode(node, kind, v === "in a library"));
    field("its code is", code, "", "code");
    if (isLibrary) {
        const file = field("library", makeInput(textOf(node.get("library")), t => setMember(node, "library", t, "text")), "a shared library, which the host can run, too");
        file.setAttribute("list", "files");
        field("template", makeInput(textOf(node.get("template")), t => setMember(node, "template", t, "text")), "what it exports by USM_TEMPLATE_EXPORT");
    } else showBodies(node, kind);
    for (const [key, f] of Object.entries(templateTable))
        if (node.has(key) || (hasField(kind, key) && !(f.text && isLibrary) && (!isStage || own.includes(key))))
            field(key, makeInput(textOf(node.get(key), f.form), t => setMember(node, key, t, f.form)), f.note);
    showData(node, "param");
}
function showStages(node) {
    const stages = Array.isArray(node.get("stages")) ? node.get("stages") : [];
    const again = () => { changed(); showFields(view.chosen); };
    stages.forEach((stage, k) => {
        element("h3", "Stage " + (k + 1), $("inspector"));
        if (stage instanceof Map) showCode(stage, "map", true);
        element("button", "Remove stage " + (k + 1), $("inspector")).addEventListener("click", () => { stages.splice(k, 1); again(); });
    });
    element("button", "Add a stage", element("p", undefined, $("inspector"))).addEventListener("click", () => {
        stages.push(beginTemplate("pipeline")[0][1][0]);
        node.set("stages", stages);
        again();
    });
}
function showTemplate(node, kind) {
    if (kind !== "pipeline") { showCode(node, kind, false); return; }
    showStages(node);
    for (const key of ["batch", "work"])
        field(key, makeInput(textOf(node.get(key)), t => setMember(node, key, t)), templateTable[key].note);
}

/* A kind of the user's, a file of the folder that the app names in `types`. */
const isOwnKind = kind => app.map.has("types") && typeof kind === "string" && !kinds.includes(kind) && !isTemplate(kind);
function showOwnKind(node) {
    const list = node.get("kernels");
    field("kernels", makeInput(Array.isArray(list) ? list.map(k => textOf(k)).join(", ") : textOf(list), t => {
        if (t) node.set("kernels", t.split(",").map(k => k.trim()).filter(Boolean)); else node.delete("kernels");
        changed();
    }), "those of the app that stand for the ones of the type, in their order");
}

/* ---- all of it ---- */
const knownOf = kind => isTemplate(kind) ? ["body", "library", "template", "param", "stages", ...Object.keys(templateTable)]
    : isOwnKind(kind) ? ["kernels"] : ["kernel", "data", ...Object.keys(fieldTable)];
/* Servers that values are in: "NAME": where. */
function showStores() {
    const stores = app.map.get("stores") instanceof Map ? app.map.get("stores") : new Map();
    element("h3", "Data servers", $("inspector"));
    for (const [name, where] of stores)
        field(name, makeInput(textOf(where), t => {
            if (t) stores.set(name, t); else stores.delete(name);
            if (!stores.size) app.map.delete("stores");
            changed();
            showFields(view.chosen);
        }), "host:port, and maybe ,tls; without it 127.0.0.1, port 6379", "store-" + name);
    if (stores.has("valkey")) return;
    element("button", "Say where Valkey is", $("inspector")).addEventListener("click", () => {
        app.map.set("stores", stores.set("valkey", "127.0.0.1:6379"));
        changed();
        showFields(view.chosen);
    });
}
function showNode(i) {
    const node = nodesOf()[i], kind = node.get("kind"), kernels = app.map.get("kernels");
    element("h3", "Node", $("inspector"));
    field("name", makeInput(nameOf(node), t => { rename(i, t); changed(); }));
    field("kind", makeSelect([...kinds, ...Object.keys(templates)], kind, k => setKind(node, k)));
    if (kind === "input") showData(node, "data");
    else if (isTemplate(kind)) showTemplate(node, kind);
    else if (isOwnKind(kind)) showOwnKind(node);
    else field("kernel", makeSelect(kernels instanceof Map ? [...kernels.keys()] : [], node.get("kernel"), k => { node.set("kernel", k); changed(); }));
    if (kind !== "input" && !isTemplate(kind) && !isOwnKind(kind))
        for (const [key, f] of Object.entries(fieldTable))
            if (!f.of || f.of.includes(kind) || node.has(key))
                field(key, makeInput(textOf(node.get(key), f.form), t => setMember(node, key, t, f.form)), f.note);
    const isSink = !edgesOf().some(([from]) => from === i);
    if (kind !== "input" && (isSink || node.has("output"))) showOutput(node);
    const known = new Set(["name", "kind", "output", ...knownOf(kind)]);
    for (const [key, v] of node)
        if (!known.has(key)) field(key, makeInput(inlineJson(v), t => setMember(node, key, t, "json")), "usm-run does not know it");
    if (kind !== "input") showEdges(i);
    element("button", "Remove node", element("p", undefined, $("inspector"))).addEventListener("click", () => remove({ node: i }));
}
function showApp() {
    const kernels = app.map.get("kernels");
    element("h3", "App", $("inspector"));
    field("name", makeInput(textOf(app.map.get("name")), t => { app.map.set("name", t); changed(); }), "any text", "app-name");
    field("types", makeInput(textOf(app.map.get("types")), t => setMember(app.map, "types", t, "text")), "a folder with kinds of nodes of one's own");
    field("policy", makeInput(textOf(app.map.get("policy")), t => setMember(app.map, "policy", t, "text")), "who gets which launch");
    element("h3", "Kernels", $("inspector"));
    for (const [name, k] of kernels instanceof Map ? kernels : []) {
        if (!(k instanceof Map)) continue;
        const box = element("div", undefined, $("inspector"));
        element("b", name, box);
        for (const key of ["file", "spirv", "bundle", "library", "options"])
            if (k.has(key) || key === "options") field(key, makeInput(textOf(k.get(key)), t => setMember(k, key, t, "text")), "", "kernel-" + name);
    }
    showStores();
    element("p", count(nodesOf().length) + " nodes, " + count(edgesOf().length) + " edges", $("inspector")).className = "soft";
}
function showFields(what) {
    $("inspector").replaceChildren();
    if (what && what.node !== undefined && nodesOf()[what.node]) showNode(what.node);
    else if (what && what.edge !== undefined && edgesOf()[what.edge]) {
        const [from, to] = edgesOf()[what.edge], nodes = nodesOf();
        element("h3", "Edge", $("inspector"));
        element("p", nameOf(nodes[to]) + " reads " + nameOf(nodes[from]), $("inspector"));
        element("button", "Remove edge", $("inspector")).addEventListener("click", () => remove(what));
    } else showApp();
    markFields();
}
/* Shows what the check says of the chosen node at the fields that it names. */
function markFields() {
    const i = view.chosen ? view.chosen.node : undefined;
    for (const e of $("inspector").querySelectorAll(".fault")) e.remove();
    for (const e of $("inspector").querySelectorAll(".wrong")) e.classList.remove("wrong");
    for (const f of app.faults.filter(f => f.where && f.where[0] === "nodes" && f.where[1] === i)) {
        const named = [...f.text.matchAll(/'(\w+)'/g)].map(m => m[1]);
        const at = named.map(n => $("inspector").querySelector("[data-field=\"" + n + "\"]")).find(Boolean) || $("inspector").firstElementChild;
        at.classList.add("wrong");
        element("p", f.text, at).className = "fault";
    }
}
