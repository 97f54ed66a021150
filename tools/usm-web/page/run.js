/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   A run of the app that is drawn: progress, states of nodes, what came out. */
"use strict";

/* The states of nodes, of a line of usm-run --progress=json. */
const statesOf = p => p.nodes.map(([tasks, done, running, ready]) =>
    tasks && done === tasks ? "done" : running ? "running" : ready ? "scheduled" : done ? "started" : "waiting");
function showShares(box, p) {
    box.replaceChildren(...p.members.map((m, k) => {
        const e = element("span", m.name + " " + percent(m.share) + (m.is_well ? "" : " (set aside)"));
        e.style.width = 100 * m.share + "%";
        e.style.background = palette[k % palette.length];
        e.hidden = m.share === 0;
        return e;
    }));
}

const run = {
    number: 0,
    shares: [], /* of each node's launches that have ended */
    begin() {
        $("app-run").addEventListener("click", () => run.start());
        $("app-stop").addEventListener("click", () => ask("POST", "/api/stop" + query({ run: run.number }), ""));
        $("app-resume").addEventListener("click", () => run.follow(() => askJson("POST", "/api/resume" + query({ run: run.number }), "")));
        listen("runs", runs => runs.filter(r => r.run === run.number).forEach(run.show));
    },
    /* The graph has changed: its nodes are no longer those of the run. */
    forget() {
        run.shares = [];
        view.states = [];
    },
    start() {
        const text = app.text, keep = $("app-keep").checked ? 1 : 0;
        return run.follow(async () => {
            const started = await askJson("POST", "/api/run" + query({ path: app.path || "app.json", keep }), text);
            run.text = text;
            return started;
        });
    },
    /* Shows the run that a request has started. */
    async follow(begin) {
        $("app-run").disabled = true;
        $("app-resume").hidden = true;
        $("run-result").replaceChildren();
        try {
            run.number = (await begin()).run;
            $("run").hidden = false;
            $("run").dataset.state = "running";
            $("run-bar").value = 0;
            $("run-text").textContent = "starting";
            $("run-messages").textContent = "";
            $("run-shares").replaceChildren();
            $("app-stop").hidden = false;
            $("run").scrollIntoView({ block: "nearest" });
            if (jobs.runs.has(run.number)) run.show(jobs.runs.get(run.number)); /* it came before its number */
            notice("", "run");
        } catch (e) {
            notice(e.message, "run");
            $("app-run").disabled = false;
        }
    },
    show(r) {
        const p = r.progress ? JSON.parse(r.progress) : null;
        if (p) run.showProgress(p, r.is_running);
        $("run-messages").textContent = r.messages.replaceAll(/^-:/gm, (app.path || "app") + ":");
        if (r.is_running) {
            if (r.is_stopped) $("run-text").textContent = "stopping; again to end it at once";
            return;
        }
        $("app-run").disabled = false;
        $("app-stop").hidden = true;
        $("app-resume").hidden = !r.can_resume;
        if (!r.is_ok) {
            $("run-text").textContent = r.is_stopped ? "stopped" : "usm-run " + r.end;
            if (run.text === app.text) run.markFailed(r.messages);
        }
        $("run").dataset.state = r.is_ok ? "done" : r.is_stopped ? "stopped" : "failed";
        if (r.is_ok) run.showResult(r).catch(e => notice(e.message, "run"));
    },
    showProgress(p, isRunning) {
        $("run-bar").value = p.fraction;
        $("run-text").textContent = percent(p.fraction) + (isRunning && p.left > 0 ? ", " + duration(p.left * 1e9) + " left" : ", " + duration(p.seconds * 1e9))
            + (p.rescheduled ? ", " + count(p.rescheduled) + " rescheduled" : "");
        showShares($("run-shares"), p);
        if (run.text !== app.text) return;
        view.states = statesOf(p);
        run.shares = p.nodes.map(([tasks, done]) => tasks ? done / tasks : 0);
        redraw();
    },
    markFailed(messages) {
        for (const m of messages.matchAll(/^-:(\d+):/gm)) {
            const where = app.at[+m[1]];
            if (where && where[0] === "nodes") view.states[where[1]] = "failed";
        }
        redraw();
    },
    async showResult(r) {
        const box = $("run-result");
        box.replaceChildren();
        if (r.result) {
            element("h3", "Result", box);
            element("pre", (await (await ask("GET", "/api/result" + query({ run: r.run }))).text()).slice(0, 100000), box);
        }
        for (const n of nodesOf()) {
            const file = n.get("output") instanceof Map ? n.get("output").get("file") : undefined;
            if (typeof file === "string") await showFile(folderOf(app.path) + file, box);
        }
    }
};

/* ---- files that a run has written ---- */

/* P5 and P6 of Netpbm, with 8 bits. */
function netpbm(data) {
    const head = /^P([56])\s+(?:#.*\n\s*)*(\d+)\s+(\d+)\s+255\s/.exec(new TextDecoder("latin1").decode(data.slice(0, 200)));
    if (!head) return null;
    const width = +head[2], height = +head[3], channels = head[1] === "6" ? 3 : 1, image = new ImageData(width, height);
    for (let i = 0, at = head[0].length; i < width * height; i++, at += channels) {
        for (let c = 0; c < 3; c++) image.data[4 * i + c] = data[at + (channels === 3 ? c : 0)];
        image.data[4 * i + 3] = 255;
    }
    return image;
}
async function drawImage(data, canvas) {
    const raw = netpbm(data);
    if (raw) {
        canvas.width = raw.width;
        canvas.height = raw.height;
        canvas.getContext("2d").putImageData(raw, 0, 0);
        return true;
    }
    try {
        const image = await createImageBitmap(new Blob([data]));
        canvas.width = image.width;
        canvas.height = image.height;
        canvas.getContext("2d").drawImage(image, 0, 0);
        return true;
    } catch {
        return false;
    }
}
/* The bytes as numbers of a type, which can be chosen. */
function showNumbers(data, box) {
    const readers = { i8: [1, "getInt8"], u8: [1, "getUint8"], i16: [2, "getInt16"], u16: [2, "getUint16"], i32: [4, "getInt32"],
        u32: [4, "getUint32"], i64: [8, "getBigInt64"], u64: [8, "getBigUint64"], f32: [4, "getFloat32"], f64: [8, "getFloat64"] };
    const pre = element("pre"), seen = new DataView(data.buffer, data.byteOffset, data.byteLength);
    const fill = type => {
        const [size, read] = readers[type], list = [];
        for (let at = 0; at + size <= data.length && list.length < 2000; at += size)
            list.push(type === "f32" ? +seen[read](at, true).toPrecision(9) : seen[read](at, true));
        pre.textContent = list.join(" ") + (list.length * size + size <= data.length ? " \u2026" : "");
    };
    const label = element("label", "as ", box);
    label.append(makeSelect(types, "f32", fill));
    box.append(pre);
    fill("f32");
}
async function showFile(path, box) {
    const data = new Uint8Array(await (await ask("GET", "/api/file" + query({ path }))).arrayBuffer());
    element("h3", path + ", " + bytes(data.length), box);
    element("button", "Save a copy", element("p", undefined, box)).addEventListener("click", () => saveText(path, data));
    const canvas = element("canvas");
    canvas.id = "result-canvas";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "the image " + path);
    if (await drawImage(data, canvas)) box.append(canvas);
    else showNumbers(data, box);
}
