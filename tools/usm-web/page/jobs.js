/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   The section Jobs: apps that run, their graphs coloured by state; launches and queues of all processes. */
"use strict";

const jobs = { runs: new Map(), chosen: 0, app: null, view: null };

function jobText(r, p) {
    if (!r.is_running) return r.is_ok ? "done" : r.is_stopped ? "stopped" : "usm-run " + r.end;
    if (r.is_stopped) return "stopping";
    return p ? percent(p.fraction) + (p.left > 0 ? ", " + duration(p.left * 1e9) + " left" : "") : "starting";
}
function drawJob(r) {
    const p = r.progress ? JSON.parse(r.progress) : null;
    let card = $("job-" + r.run);
    if (!card) {
        card = element("div");
        card.id = "job-" + r.run;
        card.className = "box job";
        $("jobs-list").prepend(card);
    }
    card.dataset.state = r.is_running ? "running" : r.is_ok ? "done" : "failed";
    card.replaceChildren();
    const head = element("header", undefined, card);
    element("b", r.path || "app", head);
    element("span", "run " + r.run + ", " + jobText(r, p), head);
    const bar = element("progress", undefined, card);
    bar.value = p ? p.fraction : 0;
    bar.setAttribute("aria-label", "progress of run " + r.run);
    if (p) {
        const shares = element("div", undefined, card);
        shares.className = "shares";
        showShares(shares, p);
        if (p.rescheduled) element("p", count(p.rescheduled) + " rescheduled: " + p.members.filter(m => !m.is_well).map(m => m.name + " is set aside").join(", "), card);
    }
    const show = element("button", "Graph", card);
    show.setAttribute("aria-pressed", jobs.chosen === r.run);
    show.addEventListener("click", () => chooseJob(r.run));
    if (r.is_running) element("button", "Stop", card).addEventListener("click", () => ask("POST", "/api/stop" + query({ run: r.run }), ""));
    $("jobs-empty").hidden = true;
    if (r.run === jobs.chosen) colourJob(r, p);
}
async function chooseJob(number) {
    jobs.chosen = number;
    jobs.app = null;
    const text = await (await ask("GET", "/api/app" + query({ run: number }))).text();
    if (jobs.chosen !== number) return; /* another one was chosen meanwhile */
    jobs.app = graphOf(parseJson(text));
    $("job-graph").hidden = false;
    $("job-title").textContent = "Run " + number;
    jobs.view.states = [];
    jobs.view.set(jobs.app.nodes, jobs.app.edges, jobs.app.places);
    for (const r of jobs.runs.values()) drawJob(r);
    jobs.view.whole();
}
function colourJob(r, p) {
    if (!jobs.app || !p) return;
    jobs.view.states = statesOf(p);
    if (!r.is_ok && !r.is_running && !r.is_stopped) jobs.view.states = jobs.view.states.map(s => s === "running" ? "failed" : s);
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
    const shares = element("div", undefined, card);
    shares.className = "shares";
    showShares(shares, { members: l.members.map(m => ({ name: m.name, share: m.items / items, is_well: true })) });
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
    const running = [...jobs.runs.values()].filter(r => r.is_running).pop() || [...jobs.runs.values()].pop();
    if (running && !jobs.chosen) chooseJob(running.run);
}
listen("runs", runs => {
    for (const r of runs) jobs.runs.set(r.run, r);
    if (!jobs.view) return;
    runs.forEach(drawJob);
    chooseFirst();
});
listen("processes", state => { if (!$("jobs").hidden) { drawLaunches(state); drawQueues(state.processes); } });
sections.jobs = () => {
    jobs.view = new GraphView($("job-canvas"), { choose: () => {} });
    for (const r of jobs.runs.values()) drawJob(r);
    chooseFirst();
};
