/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
   What all sections of usm-web's page share: the token, requests, the stream of events, which section is
   shown. */
"use strict";

/* The token comes behind the '#' of the address that usm-web prints.  It is taken out of the address bar,
 * and kept for reloads of this tab alone. */
const token = (() => {
    const given = /^#token=([0-9a-f]+)$/.exec(location.hash);
    if (given) {
        sessionStorage.setItem("token", given[1]);
        history.replaceState(null, "", location.pathname);
    }
    return sessionStorage.getItem("token") || "";
})();

function notice(text, key) {
    const old = document.querySelector("#notices [data-key=\"" + key + "\"]");
    if (old && old.textContent === text) return; /* a screen reader has said it */
    if (old) old.remove();
    if (!text) return;
    const e = element("div", text, $("notices"));
    e.className = "notice";
    e.dataset.key = key;
}

/* A request with the token.  Throws an Error with the server's sentence. */
async function ask(method, path, body, headers = {}) {
    let answer;
    try {
        answer = await fetch(path, { method, body, headers: { ...headers, Authorization: "Bearer " + token } });
    } catch {
        throw new Error("usm-web does not answer: was it ended?");
    }
    if (answer.ok) return answer;
    const text = await answer.text();
    let said = text;
    try { said = JSON.parse(text).error; } catch { /* no JSON: as it is */ }
    if (answer.status === 401) notice(said, "token");
    throw Object.assign(new Error(said), { status: answer.status });
}
const askJson = async (method, path, body) => (await ask(method, path, body)).json();
const query = fields => "?" + new URLSearchParams(fields);

/* ---- the stream of events: listeners by the name of the event ---- */
const listeners = {};
const listen = (name, fn) => { (listeners[name] = listeners[name] || []).push(fn); };

/* A message that cannot be shown is told once, and ends neither the stream nor the other listeners' turn. */
function takeEvent(text) {
    const name = /^event: (.*)$/m.exec(text), data = /^data: (.*)$/m.exec(text);
    if (!name || !data) return;
    for (const fn of listeners[name[1]] || []) {
        try {
            fn(JSON.parse(data[1]));
        } catch (e) {
            notice("A message about " + name[1] + " could not be shown: " + e.message, "event-" + name[1]);
        }
    }
}
function linkState(state, text) {
    $("link").dataset.state = state;
    if ($("link").textContent !== text) $("link").textContent = text;
}
async function readStream() {
    const answer = await ask("GET", "/api/live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    linkState("live", "live");
    notice("", "token");
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        parts.forEach(takeEvent);
    }
}
async function follow() {
    for (let pause = 200; ; pause = Math.min(pause * 2, 3000)) {
        const begun = performance.now();
        try {
            await readStream();
        } catch (e) {
            linkState("lost", e.message);
            if (e.status === 401) return;
        }
        if (performance.now() - begun > 2000) pause = 200;
        linkState("lost", "not connected; trying again");
        await new Promise(done => setTimeout(done, pause));
    }
}

/* ---- sections ---- */
const sections = {}; /* by name: a function that is called when the section is first shown */
function show() {
    if (location.hash === "#main") return; /* within the section that is shown */
    const name = location.hash.slice(1) in sections ? location.hash.slice(1) : "machine";
    for (const s of document.querySelectorAll("main > section")) s.hidden = s.id !== name;
    for (const a of document.querySelectorAll("nav a"))
        if (a.hash === "#" + name) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
    document.title = "usm: " + name;
    const begin = sections[name];
    sections[name] = () => {};
    begin();
}

/* Rows of texts.  `each` is given { tr, values } of every row. */
function fillTable(table, heads, rows, each) {
    if (!table.tHead) {
        const head = element("tr", undefined, element("thead", undefined, table));
        for (const h of heads) element("th", h, head).scope = "col";
        element("tbody", undefined, table);
    }
    table.tBodies[0].replaceChildren(...rows.map(values => {
        const tr = element("tr");
        for (const v of values) element("td", String(v), tr);
        if (each) each({ tr, values });
        return tr;
    }));
}
/* Lets the user save what is given, or a file of the folder. */
function saveText(name, ...parts) {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob(parts));
    link.download = name.slice(name.lastIndexOf("/") + 1);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
async function saveCopy(path) {
    saveText(path, await (await ask("GET", "/api/file" + query({ path }))).blob());
}

/* Asks for a text: null if the dialog was left. */
function askText(label, value) {
    const d = $("ask");
    $("ask-label").textContent = label;
    $("ask-value").value = value;
    d.returnValue = "";
    d.showModal();
    return new Promise(done => d.addEventListener("close", () =>
        done(d.returnValue === "ok" ? $("ask-value").value.trim() : null), { once: true }));
}

addEventListener("unhandledrejection", e => notice(e.reason.message, "error"));
addEventListener("hashchange", show);
addEventListener("DOMContentLoaded", () => {
    if (!token) notice("Open the address that usm-web has printed: it has the token that this page needs.", "token");
    show();
    if (token) follow();
    document.documentElement.dataset.state = "drawn";
});
