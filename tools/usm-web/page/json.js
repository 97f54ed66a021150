/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   Apps as text and back.  JSON.parse() would round large numbers, write 1.0 as 1 and sort names that look
   like numbers; here objects are Maps in the order of the text, and numbers keep their spelling, so that
   what was not changed is written as it was. */
"use strict";

/* A number, as it is written. */
class Raw {
    constructor(text) { this.text = String(text); }
}

function parseJson(text) {
    let at = 0;
    const fail = what => {
        throw Object.assign(new Error(what), { line: text.slice(0, at).split("\n").length });
    };
    const blanks = () => { while (" \t\r\n".includes(text[at] || "x")) at++; };
    const string = () => {
        const found = /"(?:[^"\\\u0000-\u001f]|\\.)*"/y;
        found.lastIndex = at;
        const m = found.exec(text);
        if (!m) fail("a text in quotes is expected");
        at += m[0].length;
        try { return JSON.parse(m[0]); } catch { return fail("a wrong escape in a text"); }
    };
    /* The elements up to `end`, each read by `one`. */
    const list = (end, one) => {
        at++;
        blanks();
        if (text[at] === end) { at++; return; }
        for (;;) {
            one();
            blanks();
            if (text[at] === end) { at++; return; }
            if (text[at] !== ",") fail("',' or '" + end + "' is expected");
            at++;
            blanks();
        }
    };
    const value = depth => {
        if (depth > 200) fail("too many brackets");
        blanks();
        if (text[at] === "{") {
            const map = new Map();
            list("}", () => {
                const key = string();
                if (map.has(key)) fail("'" + key + "' is there twice");
                blanks();
                if (text[at++] !== ":") { at--; fail("':' is expected"); }
                map.set(key, value(depth + 1));
            });
            return map;
        }
        if (text[at] === "[") {
            const array = [];
            list("]", () => array.push(value(depth + 1)));
            return array;
        }
        if (text[at] === "\"") return string();
        const found = /(true|false|null)|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
        found.lastIndex = at;
        const m = found.exec(text);
        if (!m) return fail("a value is expected");
        at += m[0].length;
        return m[1] ? JSON.parse(m[1]) : new Raw(m[0]);
    };
    const all = value(0);
    blanks();
    if (at < text.length) fail("nothing is expected behind the end");
    return all;
}

/* In one line. */
function inlineJson(v) {
    if (v instanceof Map) return "{" + [...v].map(([k, x]) => JSON.stringify(k) + ": " + inlineJson(x)).join(", ") + "}";
    if (Array.isArray(v)) return "[" + v.map(inlineJson).join(", ") + "]";
    return v instanceof Raw ? v.text : JSON.stringify(v);
}

const WIDTH = 100;

/* A node: in one line if it fits, else as many members in a line as fit, and pieces of data and
 * stages one a line. */
function formatNode(node, indent) {
    const pad = " ".repeat(indent), whole = inlineJson(node);
    if (!(node instanceof Map) || indent + whole.length + 1 <= WIDTH) return pad + whole;
    const lines = [];
    let line = pad + "{", isFirst = true;
    for (const [key, v] of node) {
        const pieces = (key === "data" || key === "stages") && Array.isArray(v) && v.length > 1;
        const member = JSON.stringify(key) + ": " + (pieces ? "[" : inlineJson(v));
        if (!isFirst && line.length + 2 + member.length + 1 > WIDTH) {
            lines.push(line + ",");
            line = pad + " " + member;
        } else {
            line += (isFirst ? "" : ", ") + member;
        }
        isFirst = false;
        if (!pieces) continue;
        lines.push(line);
        v.forEach((p, i) => lines.push(pad + "    " + inlineJson(p) + (i + 1 < v.length ? "," : "")));
        line = pad + "]";
    }
    lines.push(line + "}");
    return lines.join("\n");
}

/* The text of an app, and for each of its lines (from 1 on) what stands there: ["nodes", 3], ["kernels",
 * "md5"], ["edges", 0]. */
function formatApp(app) {
    const out = [], at = [undefined];
    const put = (text, where) => {
        for (const line of text.split("\n")) { out.push(line); at.push(where); }
    };
    const block = (key, open, close, parts, comma) => {
        if (!parts.length) { put("    " + JSON.stringify(key) + ": " + open + close + comma, [key]); return; }
        put("    " + JSON.stringify(key) + ": " + open, [key]);
        parts.forEach(([text, where], i) => put(text + (i + 1 < parts.length ? "," : ""), where));
        put("    " + close + comma, [key]);
    };
    const member = (key, v, comma) => {
        const whole = "    " + JSON.stringify(key) + ": " + inlineJson(v) + comma;
        const lists = key === "nodes" || ((key === "edges" || key === "view") && whole.length > WIDTH);
        if (v instanceof Map && (key === "kernels" || lists))
            block(key, "{", "}", [...v].map(([k, x]) => ["        " + JSON.stringify(k) + ": " + inlineJson(x), [key, k]]), comma);
        else if (Array.isArray(v) && lists)
            block(key, "[", "]", v.map((x, i) => [formatNode(x, 8), [key, i]]), comma);
        else
            put(whole, [key]);
    };
    put("{");
    const members = [...app];
    members.forEach(([key, v], i) => member(key, v, i + 1 < members.length ? "," : ""));
    put("}");
    return { text: out.join("\n") + "\n", at };
}
