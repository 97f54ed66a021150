/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   A graph of nodes in an SVG: boxes from left to right, curves between them.  Only what is in view is made;
   far away, or when that is much, nodes are small squares, all of one state in one path.  Who owns the graph
   is told what the user does to it. */
"use strict";

const NODE_WIDTH = 168, NODE_HEIGHT = 48, NEAR = 0.42, NEAR_MAX = 300, EDGES_MAX = 4000;
const kindColours = { input: "#c9a227", partition: "#9a70a6", process: "#4878a8", expandable: "#4878a8", merge: "#5a9e50" };
const templateColour = "#b0603c";

function svg(tag, attributes, parent) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (parent) parent.append(e);
    return e;
}

/* Places for n nodes: a column for each distance from the nodes that read nobody.  What is on a cycle stands
 * in the last column. */
function arrange(n, edges) {
    const readers = Array.from({ length: n }, () => []), waits = new Int32Array(n), column = new Int32Array(n);
    for (const [from, to] of edges) { readers[from].push(to); waits[to]++; }
    const ready = [];
    for (let i = 0; i < n; i++) if (!waits[i]) ready.push(i);
    let last = 0;
    for (let k = 0; k < ready.length; k++) {
        for (const to of readers[ready[k]]) {
            column[to] = Math.max(column[to], column[ready[k]] + 1);
            last = Math.max(last, column[to]);
            if (--waits[to] === 0) ready.push(to);
        }
    }
    for (let i = 0; i < n; i++) if (waits[i] > 0) column[i] = last + 1;
    const used = new Map(), places = [];
    for (let i = 0; i < n; i++) {
        const row = used.get(column[i]) || 0;
        used.set(column[i], row + 1);
        places.push([column[i], row]);
    }
    const most = Math.max(0, ...used.values());
    return places.map(([c, r]) => [40 + c * (NODE_WIDTH + 72),
        40 + (r + (most - used.get(c)) / 2) * (NODE_HEIGHT + 28)]);
}

class GraphView {
    /* events: choose(what), move(i, place, isEnd), connect(from, to), remove(what) */
    constructor(root, events) {
        this.root = root;
        this.events = events;
        this.world = root.querySelector("g");
        this.edgeLayer = this.world.children[0];
        this.nodeLayer = this.world.children[1];
        this.wire = this.world.children[2];
        this.scale = 1;
        this.x = this.y = 0;
        this.nodes = this.edges = this.places = this.states = [];
        this.chosen = null;
        this.wrong = new Set();
        this.listen();
    }
    /* nodes: { name, kind, note, isTemplate }; edges: pairs of numbers; places: pairs of coordinates. */
    set(nodes, edges, places) {
        Object.assign(this, { nodes, edges, places });
        this.draw();
    }
    draw() {
        if (this.isDue) return;
        this.isDue = true;
        requestAnimationFrame(() => { this.isDue = false; this.render(); });
    }
    whole() {
        const box = this.root.getBoundingClientRect();
        if (!this.places.length || !box.width) return;
        let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
        for (const [x, y] of this.places) {
            left = Math.min(left, x); right = Math.max(right, x + NODE_WIDTH);
            top = Math.min(top, y); bottom = Math.max(bottom, y + NODE_HEIGHT);
        }
        this.scale = Math.min(1.2, (box.width - 40) / (right - left), (box.height - 40) / (bottom - top));
        this.x = (box.width - (right + left) * this.scale) / 2;
        this.y = (box.height - (bottom + top) * this.scale) / 2;
        this.draw();
    }
    /* From the window to the graph. */
    pointOf(e) {
        const box = this.root.getBoundingClientRect();
        return [(e.clientX - box.left - this.x) / this.scale, (e.clientY - box.top - this.y) / this.scale];
    }
    nodeAt([x, y]) {
        for (let i = this.places.length - 1; i >= 0; i--) {
            const [nx, ny] = this.places[i];
            if (x >= nx - 8 && x <= nx + NODE_WIDTH + 8 && y >= ny && y <= ny + NODE_HEIGHT) return i;
        }
        return -1;
    }
    render() {
        const box = this.root.getBoundingClientRect();
        if (!box.width) return;
        this.world.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
        const left = -this.x / this.scale - NODE_WIDTH, right = (box.width - this.x) / this.scale;
        const top = -this.y / this.scale - NODE_HEIGHT, bottom = (box.height - this.y) / this.scale;
        const seen = [];
        this.places.forEach(([x, y], i) => { if (x >= left && x <= right && y >= top && y <= bottom) seen.push(i); });
        const focused = document.activeElement?.dataset?.node;
        const isNear = this.scale >= NEAR && seen.length <= NEAR_MAX;
        this.root.dataset.near = isNear;
        this.renderEdges(isNear, seen);
        if (isNear) this.nodeLayer.replaceChildren(...seen.map(i => this.makeNode(i)));
        else this.renderFar(seen);
        if (focused !== undefined) this.nodeLayer.querySelector(`[data-node="${focused}"]`)?.focus();
    }
    curve(from, to) {
        const x = from[0] + NODE_WIDTH, y = from[1] + NODE_HEIGHT / 2, tx = to[0], ty = to[1] + NODE_HEIGHT / 2;
        const bend = Math.max(30, Math.abs(tx - x) / 2);
        return `M${x} ${y}C${x + bend} ${y} ${tx - bend} ${ty} ${tx} ${ty}`;
    }
    renderEdges(isNear, seen) {
        const near = new Set(seen), shown = [];
        this.edges.forEach(([from, to], k) => { if (near.has(from) || near.has(to)) shown.push(k); });
        const pathOf = k => this.curve(this.places[this.edges[k][0]], this.places[this.edges[k][1]]);
        if (!isNear) {
            const d = shown.slice(0, EDGES_MAX).map(pathOf).join("");
            this.edgeLayer.replaceChildren(svg("path", { d, class: "plain" }));
            return;
        }
        this.edgeLayer.replaceChildren(...shown.flatMap(k => {
            const isChosen = this.chosen && this.chosen.edge === k, d = pathOf(k);
            return [svg("path", { d, class: isChosen ? "chosen" : "" }), svg("path", { d, class: "hit", "data-edge": k })];
        }));
    }
    renderFar(seen) {
        const paths = new Map();
        for (const i of seen) {
            const state = this.states[i] || "", [x, y] = this.places[i];
            paths.set(state, (paths.get(state) || "") + `M${x} ${y}h${NODE_WIDTH}v${NODE_HEIGHT}h${-NODE_WIDTH}z`);
        }
        this.nodeLayer.replaceChildren(...[...paths].map(([state, d]) => svg("path", { d, class: "far", "data-state": state })));
    }
    makeNode(i) {
        const n = this.nodes[i], [x, y] = this.places[i], state = this.states[i] || "";
        const isChosen = this.chosen && this.chosen.node === i;
        const g = svg("g", { transform: `translate(${x} ${y})`, tabindex: 0, role: "button", "data-node": i, "data-state": state,
            class: "node" + (isChosen ? " chosen" : "") + (this.wrong.has(i) ? " wrong" : ""),
            "aria-label": [n.kind, n.name, n.note, state, this.wrong.has(i) ? "has a mistake" : ""].filter(Boolean).join(", ") });
        svg("rect", { class: "body", width: NODE_WIDTH, height: NODE_HEIGHT }, g);
        svg("rect", { class: "kind", x: 7, y: 8, width: 5, height: NODE_HEIGHT - 16 }, g)
            .style.fill = kindColours[n.kind] || (n.isTemplate ? templateColour : "#6b7f94");
        const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "\u2026" : text;
        svg("text", { x: 20, y: 20 }, g).textContent = cut(n.name, 19);
        svg("text", { x: 20, y: 36, class: "soft" }, g).textContent = cut(n.note || n.kind, 25);
        if (n.share > 0) svg("rect", { class: "done", x: 20, y: NODE_HEIGHT - 7, width: (NODE_WIDTH - 32) * n.share, height: 3 }, g);
        if (n.kind !== "input") svg("circle", { cx: 0, cy: NODE_HEIGHT / 2, r: 5, "data-in": i }, g);
        svg("circle", { cx: NODE_WIDTH, cy: NODE_HEIGHT / 2, r: 6, "data-out": i }, g);
        return g;
    }
    choose(what) {
        this.chosen = what;
        this.draw();
        this.events.choose(what);
    }
    /* What a pointer that went down does until it goes up: { move(e), end(e) }. */
    begin(e) {
        const out = e.target.dataset.out, edge = e.target.dataset.edge, node = e.target.closest("[data-node]");
        const from = this.pointOf(e);
        if (out !== undefined && this.events.connect) {
            const start = this.places[out];
            return {
                move: ev => {
                    const [x, y] = this.pointOf(ev);
                    this.wire.setAttribute("d", this.curve(start, [x, y - NODE_HEIGHT / 2]));
                },
                end: ev => {
                    const to = this.nodeAt(this.pointOf(ev));
                    this.wire.removeAttribute("d");
                    if (to >= 0 && to !== +out) this.events.connect(+out, to);
                }
            };
        }
        if (edge !== undefined) { this.choose({ edge: +edge }); return null; }
        const far = node ? -1 : this.root.dataset.near === "false" ? this.nodeAt(from) : -1;
        const i = node ? +node.dataset.node : far;
        if (i >= 0) {
            const at = this.places[i];
            let moved = false;
            this.choose({ node: i });
            return this.events.move && {
                move: ev => {
                    const [x, y] = this.pointOf(ev);
                    moved = moved || Math.hypot(x - from[0], y - from[1]) * this.scale > 3;
                    if (moved) this.events.move(i, [Math.round(at[0] + x - from[0]), Math.round(at[1] + y - from[1])], false);
                },
                end: () => { if (moved) this.events.move(i, this.places[i], true); }
            };
        }
        const x = this.x - e.clientX, y = this.y - e.clientY;
        let panned = false;
        return {
            move: ev => { panned = true; this.x = x + ev.clientX; this.y = y + ev.clientY; this.draw(); },
            end: () => { if (!panned) this.choose(null); }
        };
    }
    zoom(factor, e) {
        const box = this.root.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
        const scale = Math.max(0.01, Math.min(3, this.scale * factor));
        this.x = x - (x - this.x) * scale / this.scale;
        this.y = y - (y - this.y) * scale / this.scale;
        this.scale = scale;
        this.draw();
    }
    listen() {
        let doing = null;
        const fingers = new Map();
        const spread = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY); };
        this.root.addEventListener("pointerdown", e => {
            if (e.button) return;
            fingers.set(e.pointerId, e);
            this.root.setPointerCapture(e.pointerId);
            doing = fingers.size === 1 ? this.begin(e) : null;
        });
        this.root.addEventListener("pointermove", e => {
            if (fingers.size === 2 && fingers.has(e.pointerId)) { /* two fingers: zoom */
                const before = spread();
                fingers.set(e.pointerId, e);
                this.zoom(spread() / Math.max(before, 1), e);
            } else if (doing) doing.move(e);
        });
        const end = e => {
            fingers.delete(e.pointerId);
            if (doing) doing.end(e);
            doing = null;
        };
        this.root.addEventListener("pointerup", end);
        this.root.addEventListener("pointercancel", end);
        this.root.addEventListener("wheel", e => {
            e.preventDefault();
            this.zoom(Math.exp(-e.deltaY / 400), e);
        }, { passive: false });
        this.root.addEventListener("focusin", e => {
            const i = e.target.dataset.node;
            if (i !== undefined && !(this.chosen && this.chosen.node === +i)) this.choose({ node: +i });
        });
        this.root.addEventListener("keydown", e => this.key(e));
        new ResizeObserver(() => this.draw()).observe(this.root);
    }
    key(e) {
        const steps = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] }[e.key];
        const i = this.chosen ? this.chosen.node : undefined;
        if (steps && i !== undefined && this.events.move)
            this.events.move(i, [this.places[i][0] + steps[0], this.places[i][1] + steps[1]], true);
        else if (steps) { this.x -= 4 * steps[0]; this.y -= 4 * steps[1]; this.draw(); }
        else if ((e.key === "Delete" || e.key === "Backspace") && this.chosen && this.events.remove) this.events.remove(this.chosen);
        else if (e.key === "Enter" && this.chosen && this.events.open) this.events.open();
        else if (e.key === "+" || e.key === "-") {
            const box = this.root.getBoundingClientRect();
            this.zoom(e.key === "+" ? 1.25 : 0.8, { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 });
        } else return;
        e.preventDefault();
    }
}
