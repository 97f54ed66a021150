/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The fields of the chosen node, with their types and limits, as usm-run has them.  What it does not know is
   shown as JSON, and kept. */
"use strict";

const kinds = ["input", "partition", "process", "expandable", "merge"];
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
    if (form === "text") return text;
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

/* ---- data of inputs ---- */
function showPiece(pieces, i, store) {
    const p = pieces[i] instanceof Map ? pieces[i] : new Map(), forms = ["numbers", "text", "hex", "file"];
    const form = forms.find(f => p.has(f)), row = element("div");
    row.className = "piece";
    const begin = { numbers: [["numbers", [new Raw(0)]], ["type", "f32"]], text: [["text", ""]], hex: [["hex", "00"]], file: [["file", "data.bin"]] };
    const again = () => { store(); showFields(view.chosen); };
    const pick = makeSelect(forms, form, f => { pieces[i] = new Map(begin[f]); again(); });
    pick.setAttribute("aria-label", "kind of piece " + (i + 1));
    row.append(pick);
    const value = p.get(form), area = element(form === "file" ? "input" : "textarea", undefined, row);
    if (form === "file") area.setAttribute("list", "files");
    area.value = form === "numbers" && Array.isArray(value) ? value.map(v => textOf(v)).join(", ") : textOf(value);
    area.rows = Math.min(6, 1 + Math.floor(area.value.length / 30));
    area.setAttribute("aria-label", "piece " + (i + 1));
    area.addEventListener("change", () => {
        p.set(form, form === "numbers" ? area.value.split(/[\s,]+/).filter(Boolean).map(v => valueOf(v)) : area.value);
        store();
    });
    if (form === "numbers") {
        const type = makeSelect(types, p.get("type"), t => { p.set("type", t); store(); });
        type.setAttribute("aria-label", "type of piece " + (i + 1));
        row.append(type);
    }
    const drop = element("button", "Remove piece", row);
    drop.addEventListener("click", () => { pieces.splice(i, 1); again(); });
    return row;
}
function showData(node) {
    const data = node.get("data"), pieces = Array.isArray(data) ? data : data === undefined ? [] : [data];
    const store = () => { node.set("data", pieces.length === 1 && !Array.isArray(data) ? pieces[0] : pieces); changed(); };
    const box = element("div", undefined, $("inspector"));
    box.dataset.field = "data";
    element("h3", "Data", box);
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
        else out.set(key, key === "file" || /^\w+$/.test(text) ? text : text.split(/[\s,]+/).filter(Boolean));
        if (out.size) node.set("output", out); else node.delete("output");
        changed();
    };
    const print = out.get("print");
    field("print the result as", makeInput(Array.isArray(print) ? print.join(", ") : textOf(print), t => set("print", t)),
        "text, hex, " + types.join(", ") + "; several: each but the last for one number", "output");
    field("write it to", makeInput(textOf(out.get("file")), t => set("file", t)), "a file in the folder", "file");
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

/* ---- all of it ---- */
function showNode(i) {
    const node = nodesOf()[i], kind = node.get("kind"), kernels = app.map.get("kernels");
    element("h3", "Node", $("inspector"));
    field("name", makeInput(nameOf(node), t => { rename(i, t); changed(); }));
    field("kind", makeSelect(kinds, kind, k => { node.set("kind", k); changed(); showFields(view.chosen); }));
    if (kind === "input") showData(node);
    else field("kernel", makeSelect(kernels instanceof Map ? [...kernels.keys()] : [], node.get("kernel"), k => { node.set("kernel", k); changed(); }));
    if (kind !== "input")
        for (const [key, f] of Object.entries(fieldTable))
            if (!f.of || f.of.includes(kind) || node.has(key))
                field(key, makeInput(textOf(node.get(key), f.form), t => setMember(node, key, t, f.form)), f.note);
    const isSink = !edgesOf().some(([from]) => from === i);
    if (kind !== "input" && (isSink || node.has("output"))) showOutput(node);
    const known = new Set(["name", "kind", "kernel", "data", "output", ...Object.keys(fieldTable)]);
    for (const [key, v] of node)
        if (!known.has(key)) field(key, makeInput(inlineJson(v), t => setMember(node, key, t, "json")), "usm-run does not know it");
    if (kind !== "input") showEdges(i);
    element("button", "Remove node", element("p", undefined, $("inspector"))).addEventListener("click", () => remove({ node: i }));
}
function showApp() {
    const kernels = app.map.get("kernels");
    element("h3", "App", $("inspector"));
    field("name", makeInput(textOf(app.map.get("name")), t => { app.map.set("name", t); changed(); }), "any text", "app-name");
    element("h3", "Kernels", $("inspector"));
    for (const [name, k] of kernels instanceof Map ? kernels : []) {
        if (!(k instanceof Map)) continue;
        const box = element("div", undefined, $("inspector"));
        element("b", name, box);
        for (const key of ["file", "spirv", "bundle", "library", "options"])
            if (k.has(key) || key === "options") field(key, makeInput(textOf(k.get(key)), t => setMember(k, key, t, "text")), "", "kernel-" + name);
    }
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
