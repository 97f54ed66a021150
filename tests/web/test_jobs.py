#!/usr/bin/env python3
"""test_jobs.py USM_WEB CC INCLUDE [LAUNCH LAUNCHER MPI]: the section Jobs in a browser: runs that are stopped and resumed,
runs that were started elsewhere, two ranks of an MPI job, pages that come back 100 times, other sites, other users.

The kernels are native ones, which wait for a file: until it is there a run is in the middle of its graph.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from browser import ROOT, Page, Server, make_folder

MARKUP = "<img src=x onerror=document.title='ran'>"
KERNELS = """
#include <time.h>
#include <unistd.h>
#include <usm/program.h>
#define KERNEL(f) void f(const usm_range *range, void *const *args); void f(const usm_range *range, void *const *args)
#define NUMBERS(i) (*(unsigned **)args[i])
#define NUMBER(i)  (*(unsigned *)args[i])
KERNEL(partitionData)
{
    for (unsigned i = 0; range->begin[0] == 0 && i < NUMBER(2); i++)
        NUMBERS(3)[i] = NUMBERS(0)[i];
}
/* The fifth and sixth part wait for "go", those behind them for "end". */
KERNEL(processData)
{
    while (range->begin[0] == 0 && NUMBERS(0)[0] >= 4 && access(NUMBERS(0)[0] < 6 ? "go" : "end", F_OK) != 0)
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    if (range->begin[0] == 0)
        NUMBERS(2)[0] = NUMBERS(0)[0] + 1;
}
KERNEL(mergeData)
{
    unsigned sum = 0;
    for (unsigned i = 0; range->begin[0] == 0 && i < NUMBER(2); i++)
        sum += NUMBERS(0)[i];
    if (range->begin[0] == 0)
        NUMBERS(3)[0] = sum;
}
"""
APP = {"kernels": {"k": {"library": "kernels.so"}},
       "nodes": [{"name": "numbers", "kind": "input", "data": {"numbers": list(range(8)), "type": "u32"}},
                 {"name": "cut", "kind": "partition", "kernel": "k", "part_size": 4, "parts": 8},
                 {"name": "work", "kind": "expandable", "kernel": "k", "out_size": 4},
                 {"name": "sum", "kind": "merge", "kernel": "k", "out_size": 4, "output": {"print": "u32"}}],
       "edges": [["numbers", "cut"], ["cut", "work"], ["work", "sum"]]}
SUM = "36"  # of 1 to 8


class Folder:
    """Kernels, an app, and the files that they wait for."""

    def __init__(self, compiler, include):
        self.path = make_folder()
        source = self.write("kernels.c", KERNELS)
        subprocess.run([compiler, "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT}/include", f"-I{include}", "-o",
                        os.path.join(self.path, "kernels.so"), source], check=True)
        self.write("app.json", json.dumps(APP))

    def write(self, name, text):
        path = os.path.join(self.path, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def go(self, *names):
        for name in names or ("go", "end"):
            self.write(name, "")

    def halt(self):
        for name in ("go", "end"):
            if os.path.exists(os.path.join(self.path, name)):
                os.unlink(os.path.join(self.path, name))

    def finish_stop(self, page, run):
        """A run was told to stop.  It hears of that when it reports progress, so until it has, the last parts wait."""
        self.go("go")
        page.wait(f"const r = {run}; return !r.is_running || progressOf(r).nodes[2][1] >= 6", "the launches under way have ended")
        self.go()

    def kept(self):
        return [name for name in os.listdir(self.path) if name.startswith(".usm-web")]


def runtime_files(suffix):
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "usm")
    return [name for name in os.listdir(folder) if name.endswith(suffix)]


def press(page, run, text):
    """A button of a run's card."""
    page.run("[...document.getElementById('job-' + arguments[0]).querySelectorAll('button')].find(b => b.textContent === arguments[1]).click()",
             run, text)


def wait_in_the_middle(page, run):
    page.wait(f"return jobs.asked === {json.dumps(run)} && jobs.view.states[2] === 'running' && jobs.view.states[1] === 'done'",
              f"{run} is in the middle of its graph")


def check_resume(page, server, folder):
    """Stop, and resume: what had ended is not done again."""
    folder.halt()
    number = server.json("POST", "/api/run?path=app.json&keep=1", json.dumps(APP))[1]["run"]
    wait_in_the_middle(page, number)
    page.wait("return jobs.app.nodes[2].share >= 0.375", "some of its parts are done")
    page.check(server.request("POST", f"/api/resume?run={number}", b"")[0] == 409, "a run that runs is not resumed")
    press(page, number, "Stop")
    page.wait(f"return document.getElementById('job-{number}').textContent.includes('stopping')", "it is stopping")
    folder.finish_stop(page, f"jobs.runs.get({number})")
    page.wait(f"return document.getElementById('job-{number}').textContent.includes('stopped')", "it is stopped")
    press(page, number, "Resume")
    page.wait(f"return [...jobs.runs.values()].some(r => r.run > {number} && r.is_ok)", "it is resumed, and ends well")
    last = page.run("return Math.max(...[...jobs.runs.keys()].filter(k => typeof k === 'number'))")
    said = page.run("return jobs.runs.get(arguments[0]).messages", last)
    resumed = re.search(r"resumed=(\d+)", said)
    page.check(resumed and int(resumed[1]) >= 4, f"what had ended is not done again: {said}")
    page.check(server.request("GET", f"/api/result?run={last}")[2].strip() == SUM.encode(), "the result is the whole")
    page.wait(f"return !document.getElementById('job-{number}').textContent.includes('Resume')", "nothing is left to be resumed")
    page.check(server.request("POST", f"/api/resume?run={number}", b"")[0] == 409, "and it is refused with a reason")
    page.wait(f"return jobs.asked === {last} && jobs.view.states.every(s => s === 'done')", "the resumed one is the one that is shown")
    page.check(page.run("return ![...jobs.runs.values()].some(r => r.pid)"), "no run of the page is one that was started elsewhere, too")


def check_killed(page, server, folder):
    """A run whose process is killed is resumed, too; one that keeps nothing is not."""
    for keep in (1, 0):
        folder.halt()
        number = server.json("POST", f"/api/run?path=app.json&keep={keep}", json.dumps(APP))[1]["run"]
        press_when_there = f"return document.getElementById('job-{number}')"
        page.wait(press_when_there, "it is listed")
        page.run(f"chooseJob({number})")
        wait_in_the_middle(page, number)
        for name in os.listdir("/proc"):
            if name.isdigit() and parent_of(name) == server.process.pid:
                os.kill(int(name), signal.SIGKILL)
        page.wait(f"return document.getElementById('job-{number}').textContent.includes('was killed')", "that it was killed is told")
        page.check(page.run(f"return jobs.runs.get({number}).can_resume") == bool(keep), f"keep={keep}: whether it can be resumed")
    page.check(folder.kept() != [], "what was kept is there")


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def start_elsewhere(tools, folder, name):
    return subprocess.Popen([os.path.join(tools, "usm-run"), name], cwd=folder.path, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def key_of(page, process):
    """Of a run that was started elsewhere."""
    return page.wait(f"const r = [...jobs.runs.values()].find(r => r.pid === {process.pid}); return r && r.progress && r.run",
                     "a run that was started elsewhere is listed")


def check_elsewhere(page, tools, folder):
    """Runs that were started elsewhere are seen, stopped, and told to have ended when they are killed."""
    folder.halt()
    folder.write(MARKUP.replace("/", "") + ".json", json.dumps(APP))
    process = start_elsewhere(tools, folder, MARKUP.replace("/", "") + ".json")
    key = key_of(page, process)
    page.run("chooseJob(arguments[0])", key)
    wait_in_the_middle(page, key)
    page.check(page.run("return document.title") == "usm: jobs", "no script ran from the name of its file")
    tasks, done, running, ready = page.run("return progressOf(jobs.runs.get(arguments[0])).nodes[2]", key)
    page.check(tasks == 8 and running >= 1 and done + running + ready == 8, f"what does not run yet is scheduled: {done}, {running}, {ready}")
    page.check(page.run("return statesOf({ nodes: [[4, 0, 0, 4], [4, 1, 1, 2], [4, 4, 0, 0], [4, 2, 0, 0], [4, 0, 0, 0], [0, 0, 0, 0]] })")
               == ["scheduled", "running", "done", "started", "waiting", "waiting"], "states of nodes")
    page.check(all(os.stat(os.path.join(os.environ["XDG_RUNTIME_DIR"], "usm", name)).st_mode & 0o777 == 0o600
                   for name in runtime_files(".graph") + runtime_files(".progress")), "its files are the user's alone")
    page.picture("web-elsewhere")
    press(page, key, "Stop")
    folder.finish_stop(page, f"jobs.runs.get('{key}')")
    out, err = process.communicate(timeout=60)
    page.check(process.returncode == 1 and "cancelled" in err, f"it was called off: {err}{out}")
    page.wait(f"return document.getElementById('job-{key}').textContent.includes('has ended')", "that it has ended is told")
    folder.halt()
    process = start_elsewhere(tools, folder, "app.json")
    key = key_of(page, process)
    process.kill()
    process.communicate()
    page.wait(f"return document.getElementById('job-{key}').textContent.includes('has ended')", "that one was killed is told")
    page.check(runtime_files(".graph") == [] and runtime_files(".progress") == [], "and nothing of it is left")
    process = start_elsewhere(tools, folder, "app.json")
    key = key_of(page, process)
    folder.go()
    out, err = process.communicate(timeout=60)
    page.check(process.returncode == 0 and out.strip() == SUM, f"one that nobody stops has its result: {out}{err}")


def check_forged(page, server):
    """Files beside monitor pages that usm-run did not write."""
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "usm")
    space = os.stat("/proc/self/ns/pid").st_ino
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    ticks, stack = fields[19], fields[25]
    head = f"usm-graph 1 {ticks} {stack}\n"

    def put(pid, suffix, text, mode=0o600):
        path = os.path.join(folder, f"{pid}-{space}{suffix}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    for text in ("", "nothing", head, "usm-graph 1 1 1\nname\n{}", "usm-graph 2\n\n"):
        put(server.process.pid, ".graph", text)
        status = server.request("GET", f"/api/graph?pid={server.process.pid}&start={ticks}")[0]
        page.check(status == 404, f"{text!r} is no graph")
    left = put(server.process.pid, ".graph", head + "name\n{}", 0o644)
    page.check(server.request("GET", f"/api/graph?pid={server.process.pid}&start={ticks}")[0] == 404, "nor is one that others may read")
    os.unlink(left)
    put(server.process.pid, ".graph", head + "name\n" + "[" * 3000)
    key = f"{server.process.pid}-{ticks}"
    for text in ("", "null", '{"nodes": 1, "members": "x"', '{"fraction": 0.5, "nodes": [1], "members": []}',
                 '{"fraction": "x", "nodes": [], "members": []}', '{"fraction": 0.5, "nodes": [[1]], "members": [null]}'):
        put(server.process.pid, ".progress", text)
        page.wait(f"return jobs.runs.has('{key}') && jobs.runs.get('{key}').progress === {json.dumps(text)}", "one whose progress is none is listed")
        page.check(page.run(f"return progressOf(jobs.runs.get('{key}'))") is None, f"{text!r} is no progress")
    page.check(page.run("return document.getElementById('link').dataset.state") == "live", "and the page goes on")
    page.run(f"return chooseJob('{key}').catch(e => {{ window.refused = e.message; }})")
    page.wait("return window.refused", "an app that is none has a sentence")
    page.check(server.request("POST", f"/api/graph/stop?pid={server.process.pid}&start=1", b"")[0] == 404, "another start is another process")
    for name in runtime_files(".graph") + runtime_files(".progress"):
        os.unlink(os.path.join(folder, name))


def check_launch(page):
    """What is said of a launch whose members failed."""
    member = {"name": "host:0", "chunks": 3, "items": 30, "busy_ns": 1000, "under_way": 0, "state": "aside", "why": MARKUP}
    launch = {"kernel": MARKUP, "start_ns": 1, "total": 100, "done": 50, "over": False, "rescheduled": 2,
              "members": [member, {**member, "name": "opencl:0.0", "items": 10, "state": "lost", "why": ""}, {**member, "state": "well", "why": ""}]}
    said = page.run("return launchCard({ program: 'p', pid: 1, host: 'h' }, arguments[0], 2e9).textContent", launch)
    page.check("2 chunks were rescheduled" in said and "set aside: " + MARKUP in said and "opencl:0.0 is lost" in said, f"why chunks were rescheduled: {said}")
    page.check(said.count("is set aside") == 1 and "43 %" in said, f"and the shares: {said}")
    page.check(page.run("return document.title") == "usm: jobs", "no script ran from a reason")


def check_large(page, server):
    """A graph of 10,000 nodes on a cycle, and one of 2,000 that runs."""
    nodes = [{"name": f"n{i}", "kind": "process", "kernel": "k", "out_size": 4} for i in range(10000)]
    edges = [[f"n{i}", f"n{(i + 1) % 10000}"] for i in range(10000)]
    app = json.dumps({"kernels": APP["kernels"], "nodes": nodes, "edges": edges})
    number = server.json("POST", "/api/run?path=app.json", app)[1]["run"]
    page.wait(f"return jobs.runs.get({number}) && !jobs.runs.get({number}).is_running", "a cycle of 10,000 nodes ends")
    page.check("cycle" in page.run(f"return jobs.runs.get({number}).messages"), "with its reason")
    page.run(f"chooseJob({number})")
    page.wait("return jobs.app && jobs.app.nodes.length === 10000", "and its graph is drawn")
    unknown = json.dumps({**APP, "kernels": {"k": {"library": "none.so"}}})
    said = server.json("POST", "/api/check?path=app.json", unknown)[1]
    page.check(not said["is_ok"] and "none.so" in said["messages"], f"a library that is not there: {said}")
    said = server.json("POST", "/api/check?path=app.json", json.dumps(APP).replace('"kernel": "k", "out_size": 4, "output"', '"kernel": "other", "out_size": 4, "output"'))[1]
    page.check(not said["is_ok"] and "other" in said["messages"], f"a kernel that is not there: {said}")


# Cuts the page's stream when it is told to, and lets it wait only shortly until it tries again.
CUTTER = """
    window.cut = () => undefined;
    window.connections = window.uses = 0;
    const ownFetch = window.fetch, ownTimeout = window.setTimeout;
    window.fetch = async (path, options) => {
        if (path !== "/api/live") return ownFetch(path, options);
        const control = new AbortController(), answer = await ownFetch(path, { ...options, signal: control.signal });
        window.cut = () => control.abort();
        window.connections++;
        return answer;
    };
    window.setTimeout = (act, ms) => ownTimeout(act, Math.min(ms, 5));
"""


def check_reconnects(page, server):
    """The page loses its connection 100 times, and has it again each time."""
    page.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": CUTTER})
    page.open(server.url)
    for n in range(1, 101):
        page.wait(f"return window.connections === {n} && document.getElementById('link').dataset.state === 'live'", f"connection {n}", faults=300)
        page.run("window.cut()")
    page.wait("return window.connections === 101", "the last connection", faults=300)
    page.run("listen('use', () => { window.uses++; })")
    page.wait("return window.uses > 0", "events come by it", faults=300)
    deadline = time.monotonic() + 20
    descriptors = f"/proc/{server.process.pid}/fd"
    while len(os.listdir(descriptors)) > 40 and time.monotonic() < deadline:
        time.sleep(0.05)
    page.check(len(os.listdir(descriptors)) <= 40, "and the server has closed the others")


def check_foreign(page, server):
    """A page of another site, in the same browser, gets nothing."""
    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><title>foreign</title>")

        def log_message(self, *_):
            pass

    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    try:
        page.browser.get(f"http://127.0.0.1:{site.server_port}/")
        for path in ("/api/files", "/api/live", "/"):
            got = page.browser.execute_async_script("""const done = arguments[arguments.length - 1];
                fetch(arguments[0], { headers: arguments[1] }).then(a => a.text().then(t => done(a.status + t)), e => done("blocked"));""",
                                                    f"http://{server.address}{path}",
                                                    {"Authorization": "Bearer " + server.token} if path != "/" else {})
            page.check(got == "blocked", f"another site gets nothing of {path}: {got}")
        before = server.json("POST", "/api/run?path=app.json", "{}")[1]["run"]
        page.browser.execute_async_script("""const done = arguments[arguments.length - 1];
            fetch(arguments[0], { mode: "no-cors", method: "POST", body: "{}" }).then(() => done(), () => done());""",
                                          f"http://{server.address}/api/run?path=app.json")
        page.check(server.json("POST", "/api/run?path=app.json", "{}")[1]["run"] == before + 1, "what it sends blindly starts nothing")
        page.browser.get_log("browser")
        page.browser.execute_async_script("""const done = arguments[arguments.length - 1], frame = document.createElement("iframe");
            frame.onload = () => done();
            frame.src = arguments[0]; document.body.append(frame);""", f"http://{server.address}/")
        page.check(any("frame-ancestors" in e["message"] for e in page.browser.get_log("browser")), "nor may it frame the page")
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


def check_other_user(page, server):
    """Another user of the machine: no token, no files of the runtime folder."""
    if os.geteuid() != 0:
        print("not tried: another user (needs root)")
        return
    asked = subprocess.run([sys.executable, "-c", f"""
import http.client, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
c = http.client.HTTPConnection("127.0.0.1", {server.port}, timeout=20)
c.request("GET", "/api/files")
status = c.getresponse().status
try:
    seen = os.listdir({os.path.join(os.environ["XDG_RUNTIME_DIR"], "usm")!r})
except PermissionError:
    seen = "refused"
try:
    open("/proc/{server.process.pid}/environ").read()
    memory = "readable"
except PermissionError:
    memory = "refused"
print(status, seen, memory)"""], capture_output=True, text=True, timeout=60, check=False)
    page.check(asked.stdout.split() == ["401", "refused", "refused"], f"another user: {asked.stdout}{asked.stderr}")


def check_mpi(page, tools, folder, launch, launcher, mpi):
    """Composed here, run by two ranks of an MPI job, watched, and its result."""
    folder.halt()
    out = os.path.join(folder.path, "said")
    job = subprocess.Popen(["timeout", "-k", "5", "100", launch, "--mpi", mpi, "--launcher", launcher, "--time", "90",
                            *(["--slots", "1,1"] if can_make_nodes() else []), "--output", out, "2",
                            "sh", "-c", 'cd "$0" && exec "$@"', folder.path, os.path.join(tools, "usm-run"), "composed.json"],
                           stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        page.wait("return [...document.querySelectorAll('#jobs-list header')].filter(e => e.textContent.includes('composed.json')).length >= 2 && "
                  "[...jobs.runs.values()].filter(r => r.pid && r.is_running && r.path === 'composed.json' && r.progress).length === 2",
                  "both ranks are seen", 60)
        page.run("location.hash = 'machine'")
        page.wait("return document.querySelectorAll('#hosts .rank').length === 2", "both are ranks of hosts")
        page.check(len(page.texts("#hosts .host")) == (2 if can_make_nodes() else 1), "grouped by host")
        page.picture("web-hosts")
        page.run("location.hash = 'jobs'")
        folder.go()
        page.check(job.wait(100) == 0, "the job ends well")
        with open(out, encoding="utf-8") as file:
            said = file.read()
        page.check(said.split().count(SUM) == 2, f"each rank has the result: {said}")
        page.wait("return [...jobs.runs.values()].filter(r => r.path === 'composed.json').every(r => !r.is_running)", "and has ended")
    finally:
        job.terminate()
        job.wait()


def can_make_nodes():
    return os.geteuid() == 0 and shutil.which("ip") is not None


def compose(page):
    """The app, as text, in Compose, is checked, saved, run, watched; its result."""
    page.run("location.hash = 'compose'")
    page.wait("return document.getElementById('compose').dataset.state === 'drawn'", "it is drawn")
    page.run("document.getElementById('check').dataset.state = 'asked';"
             "document.getElementById('text').value = arguments[0];"
             "document.getElementById('text').dispatchEvent(new Event('input'));", json.dumps(APP))
    page.wait("return document.getElementById('check').dataset.state === 'good'", "it is a right app")
    page.run("save('composed.json')")
    page.wait("return document.getElementById('app-state').textContent === 'saved'", "it is saved")


def check_compose(page, folder):
    """Run, watch, stop, resume and see the result without leaving Compose."""
    folder.halt()
    compose(page)
    page.run("document.getElementById('app-run').click()")
    page.wait("return view.states[1] === 'done' && view.states[2] === 'running' && run.shares[2] >= 0.375", "it is watched in the middle")
    page.run("document.getElementById('app-stop').click()")
    page.wait("return document.getElementById('run-text').textContent.includes('stopping')", "it is stopping")
    folder.finish_stop(page, "jobs.runs.get(run.number)")
    page.wait("return document.getElementById('run').dataset.state === 'stopped' && !document.getElementById('app-resume').hidden", "it is stopped, and can be resumed")
    page.run("document.getElementById('app-resume').click()")
    page.wait("return document.getElementById('run').dataset.state === 'done'", "it goes on to its end")
    page.wait(f"return document.getElementById('run-result').textContent.includes('{SUM}')", "the result is shown")
    page.check(page.run("return view.states.every(s => s === 'done') && document.getElementById('app-resume').hidden"), "all nodes are done")
    page.run("location.hash = 'jobs'")


def check_full_disk(page, tool):
    """A disk that is full when an app is saved: a sentence, and nothing is lost."""
    folder = make_folder()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder],
                                           stderr=subprocess.DEVNULL, check=False).returncode:
        print("not tried: a full disk (no tmpfs can be mounted)")
        shutil.rmtree(folder)
        return
    server = Server(tool, folder)
    try:
        page.open(server.url)
        page.run("location.hash = 'compose'")
        page.wait("return document.getElementById('compose').dataset.state === 'drawn'", "it is drawn", faults=300) # the server before has ended
        page.run("document.getElementById('text').value = arguments[0]; document.getElementById('text').dispatchEvent(new Event('input'));",
                 json.dumps({**APP, "name": "x" * 100000}))
        page.run("return save('large.json')")
        page.wait("return document.getElementById('notices').textContent.includes('No space left')", "that the disk is full is told", faults=2)
        page.check(page.run("return app.text.length") > 100000, "what is drawn is still there")
        page.check(os.listdir(folder) == [], "and nothing half is saved")
    finally:
        server.end()
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


def main():
    tool, compiler, include, *mpi = sys.argv[1:]
    tools = os.path.dirname(tool)
    folder = Folder(compiler, include)
    server = Server(tool, folder.path)
    page = Page(server)
    try:
        page.run("location.hash = 'jobs'")
        page.wait("return jobs.view && document.getElementById('link').dataset.state === 'live'", "it is connected")
        check_resume(page, server, folder)
        check_killed(page, server, folder)
        check_elsewhere(page, tools, folder)
        check_forged(page, server)
        check_launch(page)
        check_compose(page, folder)
        if mpi:
            check_mpi(page, tools, folder, *mpi)
        check_large(page, server)
        check_other_user(page, server)
        check_foreign(page, server)
        check_reconnects(page, server)
        page.check(server.end() == 0 and folder.kept() == [], "at its end nothing of what was kept is left")
        check_full_disk(page, tool)
    finally:
        page.end()
        server.end()
        shutil.rmtree(folder.path)
    page.report()


if __name__ == "__main__":
    main()
