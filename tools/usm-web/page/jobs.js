/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The section Jobs: apps that run, their graphs coloured by state; launches and queues of all processes. */
"use strict";

/* Runs of this program have numbers; those that were started elsewhere have a process. */
const jobs = { runs: new Map(), chosen: 0, asked: 0, app: null, view: null };

const titleOf = r => r.pid ? "process " + r.pid : "run " + r.run;
function jobText(r, p) {
    if (!r.is_running && r.pid) return "has ended";
    if (!r.is_running) return r.is_ok ? "done" : r.is_stopped ? "stopped" : "usm-run " + r.end;
    if (r.is_stopped) return "stopping";
    return p ? percent(p.fraction) + (p.left > 0 ? ", " + duration(p.left * 1e9) + " left" : "") : "starting";
}
/* What is no line of progress is shown as none: the file of another process may hold anything. */
function progressOf(r) {
    try {
        const p = JSON.parse(r.progress);
        const isOne = Number.isFinite(p.fraction) && p.nodes.every(Array.isArray) && p.members.every(m => Number.isFinite(m.share));
        return isOne ? p : null;
    } catch {
        return null;
    }
}
/* Whose work others got, and why. */
function showReasons(card, members) {
    for (const m of members.filter(m => m.why))
        element("p", m.name + (m.is_well ? " could not do all that it was given: " : m.is_lost ? " is lost: " : " is set aside: ") + m.why, card).className = "bad";
}
function jobButton(text, card, act) {
    const b = element("button", text, card);
    b.addEventListener("click", () => act().then(() => notice("", "job"), e => notice(e.message, "job")));
    return b;
}
function stopJob(r) {
    return ask("POST", r.pid ? "/api/graph/stop" + query({ pid: r.pid, start: r.start }) : "/api/stop" + query({ run: r.run }), "");
}
async function resumeJob(r) {
    jobs.chosen = (await askJson("POST", "/api/resume" + query({ run: r.run }), "")).run;
    jobs.app = null;
    chooseFirst();
}
function cardOf(r) {
    let card = $("job-" + r.run);
    if (!card) {
        card = element("div");
        card.id = "job-" + r.run;
        card.className = "box job";
        element("div", undefined, card);
        element("p", undefined, card);
        $("jobs-list").prepend(card);
    }
    return card;
}
/* Buttons stay while they mean the same: one that is replaced between press and release gets no click. */
function drawJobButtons(r, bar) {
    const key = [r.is_running, r.can_resume].join();
    if (bar.dataset.key !== key) {
        bar.dataset.key = key;
        bar.replaceChildren();
        jobButton("Graph", bar, () => chooseJob(r.run));
        if (r.is_running) jobButton("Stop", bar, () => stopJob(r));
        if (r.can_resume) jobButton("Resume", bar, () => resumeJob(r));
    }
    bar.firstChild.setAttribute("aria-pressed", jobs.chosen === r.run);
}
function drawJob(r) {
    const p = progressOf(r), [card, bar] = [cardOf(r).firstChild, cardOf(r).lastChild];
    card.parentNode.dataset.state = r.is_running ? "running" : r.is_ok ? "done" : r.pid ? "ended" : "failed";
    drawJobButtons(r, bar);
    card.replaceChildren();
    const head = element("header", undefined, card);
    element("b", r.path || "app", head);
    element("span", titleOf(r) + ", " + jobText(r, p), head);
    const progress = element("progress", undefined, card);
    progress.value = p ? p.fraction : 0;
    progress.setAttribute("aria-label", "progress of " + titleOf(r));
    if (p) {
        const shares = element("div", undefined, card);
        shares.className = "shares";
        showShares(shares, p);
        if (p.rescheduled) element("p", count(p.rescheduled) + (p.rescheduled === 1 ? " launch was" : " launches were") + " rescheduled", card);
        showReasons(card, p.members);
    }
    $("jobs-empty").hidden = true;
    if (r.run === jobs.chosen) colourJob(r, p);
}
async function chooseJob(number) {
    const r = jobs.runs.get(number);
    jobs.chosen = jobs.asked = number;
    jobs.app = null;
    const text = await (await ask("GET", r.pid ? "/api/graph" + query({ pid: r.pid, start: r.start }) : "/api/app" + query({ run: number }))).text();
    if (jobs.chosen !== number) return; /* another one was chosen meanwhile */
    jobs.app = graphOf(parseJson(text));
    $("job-graph").hidden = false;
    $("job-title").textContent = titleOf(r)[0].toUpperCase() + titleOf(r).slice(1);
    jobs.view.states = [];
    jobs.view.set(jobs.app.nodes, jobs.app.edges, jobs.app.places);
    for (const r of jobs.runs.values()) drawJob(r);
    jobs.view.whole();
}
function colourJob(r, p) {
    if (!jobs.app || !p) return;
    jobs.view.states = statesOf(p);
    if (!r.pid && !r.is_ok && !r.is_running && !r.is_stopped) jobs.view.states = jobs.view.states.map(s => s === "running" ? "failed" : s);
    jobs.app.nodes.forEach((n, i) => { n.share = p.nodes[i] && p.nodes[i][0] ? p.nodes[i][1] / p.nodes[i][0] : 0; });
    jobs.view.draw();
}
/* A launch of usm_parallel() that is under way, or was the last: its members' shares are those of the indices
 * that are done. */
function launchCard(p, l, now) {
    const card = element("div"), head = element("header", undefined, card), seconds = (now - l.start_ns) / 1e9, done = l.total ? l.done / l.total : 0;
    card.className = "box job";
    card.dataset.state = l.over ? "done" : "running";
    element("b", l.kernel || "launch", head);
    element("span", p.program + ", process " + p.pid + (p.rank === undefined ? "" : ", rank " + p.rank + " of " + p.ranks) + (p.host ? " on " + p.host : ""), head);
    const bar = element("progress", undefined, card);
    bar.value = l.over ? 1 : done;
    bar.setAttribute("aria-label", "progress of " + l.kernel);
    element("p", l.over ? "over" : percent(done) + " of " + count(l.total) + (done > 0 ? ", " + duration((seconds / done - seconds) * 1e9) + " left" : ""), card);
    const items = l.members.reduce((n, m) => n + m.items, 0) || 1;
    const members = l.members.map(m => ({ ...m, share: m.items / items, is_well: m.state !== "aside" && m.state !== "lost", is_lost: m.state === "lost",
        why: m.why || (m.state === "lost" ? "its process has ended, or does not answer" : m.state === "aside" ? "its rank has the reason" : "") }));
    const shares = element("div", undefined, card);
    shares.className = "shares";
    showShares(shares, { members });
    if (l.rescheduled) element("p", count(l.rescheduled) + (l.rescheduled === 1 ? " chunk was" : " chunks were") + " rescheduled", card);
    showReasons(card, members);
    for (const m of l.members)
        element("small", m.name + ": " + count(m.chunks) + (m.chunks === 1 ? " chunk" : " chunks") + ", " + count(m.under_way) + " under way, busy "
            + duration(m.busy_ns), element("div", undefined, card));
    return card;
}
function drawLaunches(state) {
    $("launches").replaceChildren(...state.processes.flatMap(p => (p.launches || []).map(l => launchCard(p, l, state.time_ns))));
    $("launches-empty").hidden = $("launches").children.length > 0;
}
function drawQueues(processes) {
    const rows = [];
    for (const p of processes)
        for (const q of p.queues || [])
            rows.push([p.program, p.pid, p.rank === undefined ? "" : p.rank + " of " + p.ranks, q.device || "", q.id, count(q.submitted), count(q.submitted - q.ended)]);
    fillTable($("queues"), ["program", "process", "rank", "device", "queue", "commands", "in flight"], rows);
    $("queues-empty").hidden = rows.length > 0;
}
/* Until the user has chosen a run, the first that comes is shown. */
function chooseFirst() {
    const running = [...jobs.runs.values()].filter(r => r.is_running).pop() || [...jobs.runs.values()].filter(r => !r.pid).pop();
    const number = jobs.chosen || (running ? running.run : 0);
    if (jobs.asked !== number && jobs.runs.has(number)) chooseJob(number).catch(e => notice(e.message, "job"));
}
function takeRuns(runs) {
    for (const r of runs) jobs.runs.set(r.run, r);
    if (!jobs.view) return;
    runs.forEach(drawJob);
    chooseFirst();
}
listen("runs", takeRuns);
/* Those that are no longer listed have ended; what they had come to stays. */
listen("graphs", graphs => {
    const now = graphs.map(g => ({ ...g, run: g.pid + "-" + g.start, is_running: true }));
    const gone = [...jobs.runs.values()].filter(r => r.pid && r.is_running && !now.some(g => g.run === r.run));
    takeRuns(now.concat(gone.map(r => ({ ...r, is_running: false }))));
});
listen("processes", state => { if (!$("jobs").hidden) { drawLaunches(state); drawQueues(state.processes); } });
sections.jobs = () => {
    jobs.view = new GraphView($("job-canvas"), { choose: () => {} });
    for (const r of jobs.runs.values()) drawJob(r);
    chooseFirst();
};
