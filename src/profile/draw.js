/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   Texts, colours and canvases that the page of `usm-prof --html` and that of usm-web share.  A plain
   script: the former has it inside, and is opened as a file. */
"use strict";
window.addEventListener("error", e => {
    document.documentElement.dataset.state = "error: " + e.message;
    const note = document.createElement("div");
    note.className = "notice";
    note.textContent = "This page met an error: " + e.message;
    document.body.prepend(note);
});

const $ = id => document.getElementById(id);
/* ---- texts ---- */
function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let k = 0;
    while (Math.abs(n) >= 1024 && k < 4) { n /= 1024; k++; }
    return (k && n < 100 && n % 1 ? n.toFixed(n < 10 ? 2 : 1) : Math.round(n).toString()) + " " + units[k];
}
function duration(ns) {
    if (ns < 1e3) return ns.toFixed(0) + " ns";
    if (ns < 1e6) return (ns / 1e3).toPrecision(3) + " \u00b5s";
    if (ns < 1e9) return (ns / 1e6).toPrecision(3) + " ms";
    return (ns / 1e9).toPrecision(4) + " s";
}
const count = n => Math.round(n).toLocaleString("en");
const percent = x => (100 * x).toFixed(x > 0 && x < 0.0995 || x > 0.9905 && x < 1 ? 1 : 0) + " %";

function element(tag, text, parent) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
}

/* ---- colours ---- */
const palette = ["#4878a8", "#e58a2e", "#5a9e50", "#cf5658", "#3fa39b", "#c9a227", "#9a70a6", "#d9789a",
    "#8d6e58", "#6b7f94", "#2f6f8f", "#a8653a"];
/* "#rrggbb" as a pixel of ImageData, lighter or darker by `by`. */
function pixel(colour, by) {
    let v = 0xff000000;
    for (let k = 0; k < 3; k++) {
        let c = parseInt(colour.slice(1 + 2 * k, 3 + 2 * k), 16);
        c = by > 0 ? c + (255 - c) * by : c * (1 + by);
        v |= Math.round(c) << 8 * k;
    }
    return v >>> 0;
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* ---- canvases ---- */
/* Two canvases, one over the other, in the box `id`: for what is drawn once, and for what follows the
 * pointer.  Both are `height` high, and at least `least` wide. */
function stage(id, height, least = 600) {
    const box = $(id), [base, over] = box.children, ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(least, box.clientWidth);
    for (const c of [base, over]) {
        c.width = width * ratio;
        c.height = height * ratio;
        c.style.height = height + "px";
        c.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    return { box, base, over, width, height, ratio, ctx: base.getContext("2d"), top: over.getContext("2d") };
}

/* Round steps of a scale: 1, 2, 4 .. of bytes, else 1, 2, 5. */
function steps(span, wanted, binary) {
    const raw = span / wanted;
    if (binary) return 2 ** Math.ceil(Math.log2(Math.max(raw, 1)));
    const ten = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-9)));
    return [1, 2, 5, 10].map(f => f * ten).find(s => s >= raw);
}

/* Shows a text beside the pointer; "" hides it. */
function tip(text, e) {
    const t = $("tip");
    t.style.display = text ? "block" : "none";
    if (!text) return;
    t.textContent = text;
    t.style.left = Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 8) + "px";
    t.style.top = (e.clientY + t.offsetHeight + 24 > innerHeight ? e.clientY - t.offsetHeight - 10
        : e.clientY + 14) + "px";
}
