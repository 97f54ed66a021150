#!/usr/bin/env python3
"""test_live.py USM_WEB PROGRAM [MD5] [--hwloc]: the sections Machine, Memory and Jobs in a browser.  PROGRAM is tests/tools/top_app.c:
it uses libusm until its input ends, and has a tag whose name a page would run.  MD5: the sample.  --hwloc: usm-web has hwloc.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import os
import shutil
import signal
import subprocess
import sys

from browser import HERE, SAMPLES, Page, Server, make_folder


def check_machine(page):
    page.wait("return document.getElementById('machine').dataset.state === 'drawn'", "the devices are drawn")
    page.check(page.texts(".device header b"), "there is a device")
    page.check(any("host:0" in text for text in page.texts(".device header span")), "the host is one")
    page.check(page.texts("#topology .pu"), "there are processors")
    page.wait("return document.querySelector('.pu').style.getPropertyValue('--use') !== ''", "their use is told")
    page.picture("web-machine")
    page.check("token" not in page.browser.current_url, "the address bar has no token")
    page.browser.refresh()
    page.wait("return document.getElementById('link').dataset.state === 'live'", "a reload keeps the token")


def check_tree(page, tool, server):
    """The machine as hwloc sees it: one of two packages, with devices on PCI."""
    with_tree = Server(tool, server.folder, environment={"HWLOC_XMLFILE": os.path.join(HERE, "two_packages.xml")})
    try:
        page.open(with_tree.url)
        page.wait("return document.querySelector('#topology .tree')", "the tree is drawn")
        page.check(page.run("""return [...document.querySelectorAll('#topology .package')].map(p =>
            ['.memory', '.cache', '.core', '.pu'].map(s => p.querySelectorAll(s).length).join())""") == ["1,3,2,4", "1,3,2,4"],
                   "two packages, in each its memory, caches, cores and processors")
        page.check(page.texts(".pu") == [str(n) for n in range(8)], f"processors by their numbers: {page.texts('.pu')}")
        said = page.texts("#topology .bridge .pci")
        page.check(len(said) == 2 and "31.51 GB/s" in said[0] and "graphics" in said[0] and "0000:00:03.0" in said[1]
                   and "Mellanox" in said[1] and "eth0" in said[1], f"devices on PCI: {said}")
        page.check("<b>" in said[0], "a name with markup is text")
        page.check("2 packages" in page.run("return document.querySelector('.tree').getAttribute('aria-label')"), "it is told in words, too")
        page.wait("return document.getElementById('machine').dataset.state === 'drawn'", "the devices are drawn beside it")
        page.picture("web-tree")
        page.open(server.url)
    finally:
        with_tree.end()


def check_bad_messages(page):
    """What a listener cannot show is told, and neither the stream nor the next listener ends."""
    seen = page.run("""window.seen = 0;
        listeners.processes.unshift(() => { throw new Error('<b>planted'); });
        listen('processes', () => window.seen++);
        takeEvent('event: processes\\ndata: {"processes": [');
        return window.seen;""")
    page.check(seen == 0, "a message that is no JSON is shown to nobody")
    page.wait("return window.seen >= 3", "the messages after it are shown")
    page.check(page.run("return document.getElementById('link').dataset.state") == "live", "the stream goes on")
    said = page.texts("#notices .notice")
    page.check(said == ["A message about processes could not be shown: <b>planted"], f"it is told once, as text: {said}")
    page.run("listeners.processes.shift(); listeners.processes.pop(); notice('', 'event-processes')")


def check_memory(page, program, folder):
    page.run("location.hash = 'memory'")
    page.wait("return document.querySelector('#processes tbody tr')", "a process is listed")
    page.wait("return document.getElementById('memory-title').textContent.includes('process " + str(program.pid) + "')",
              "it is chosen")
    page.wait("return chosenHistory().length > 5 && document.querySelectorAll('.pool').length > 0", "its pools are drawn")
    page.wait("return [...document.querySelectorAll('#memory-tags th')].some(e => e.textContent === 'leak')", "its tags are told")
    page.wait("return [...document.querySelectorAll('#memory-tags td')].some(e => e.textContent === 'growing')", "one of them grows")
    page.check(any("<script>" in text for text in page.texts("#memory-tags th")), "a tag with markup is text")
    page.check(page.run("return document.querySelectorAll('main script').length") == 0, "and no element")
    # Frozen: time goes on, the picture does not; the moments before can be looked at.
    page.run("document.getElementById('memory-freeze').click()")
    shown = page.run("return shownHistory().length")
    page.wait(f"return chosenHistory().length > {shown + 3}", "the process goes on")
    page.check(page.run("return shownHistory().length") == shown, "what is frozen stays")
    page.run("const e = document.getElementById('memory-scrub'); e.value = 0; e.dispatchEvent(new Event('input'));")
    page.check(page.run("return memoryView.at") == 0, "an earlier moment is shown")
    page.run("document.getElementById('memory-freeze').click()")
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    page.wait("return document.getElementById('memory-state').textContent.includes('has ended')", "that it was killed is told")
    page.check(page.run("return shownHistory().length") > shown, "what it had is still there")
    page.run("return listTraces()")
    page.check(page.run("return document.querySelectorAll('#traces button').length") == 2, "its trace is listed")
    page.run("document.querySelector('#traces button').click()")
    page.wait("return !document.querySelector('#traces button').disabled", "the trace is exported")
    with open(os.path.join(folder, "app.trace.html"), encoding="utf-8") as file:
        page.check("top_app" in file.read(), "as a page")


def check_jobs(page, server):
    with open(os.path.join(SAMPLES, "integral.json"), encoding="utf-8") as file:
        app = file.read()
    slow = app.replace("1048576", "4294967295").replace('"parts": 8', '"parts": 4000')
    number = server.json("POST", "/api/run?path=integral.json", slow)[1]["run"]
    page.run("location.hash = 'jobs'")
    page.wait(f"return jobs.chosen === {number}", "a run that was begun elsewhere is shown")
    page.wait("return jobs.view.states.includes('running')", "a node runs")
    page.wait("return [...document.querySelectorAll('#queues td')].some(e => e.textContent === 'usm-run')", "its queues are listed")
    page.picture("web-jobs")
    page.run("[...document.querySelectorAll('.job button')].find(b => b.textContent === 'Stop').click()")
    page.wait(f"return !jobs.runs.get({number}).is_running", "it can be stopped")
    number = server.json("POST", "/api/run?path=integral.json", app)[1]["run"]
    page.wait(f"return jobs.runs.get({number}) && jobs.runs.get({number}).is_ok", "another one ends well")
    page.run(f"chooseJob({number})")
    page.wait("return jobs.view.states.length === 4 && jobs.view.states.every(s => s === 'done')", "and all its nodes are done")


def check_ranks(page, md5, folder):
    """A launch over three ranks: who they are, how far it has got; the device of one fails, another one is killed."""
    meet = os.path.join(folder, "meet")
    os.mkdir(meet)
    ranks = [subprocess.Popen([md5, "--digest", "0" * 32, "--max-length", "13", f"--ranks=socket:{meet},rank={rank},size=3"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, **({"USM_HOOKS": "fault:launch@1=USM_E_DEVICE"} if rank == 2 else {})})
             for rank in range(3)]
    try:
        page.run("location.hash = 'memory'")
        for rank in range(3):
            page.wait(f"return [...document.querySelectorAll('#processes td')].some(e => e.textContent === '{rank} of 3')", f"rank {rank} is listed")
        page.run("location.hash = 'jobs'")
        page.wait("return [...document.querySelectorAll('#launches header')].some(e => e.textContent.includes('of 3'))", "the launch is shown")
        page.wait("return [...document.querySelectorAll('#launches .job')].some(e => /rank 0/.test(e.textContent) && /2.opencl:0 is set aside: its rank has the reason/.test(e.textContent))",
                  "a device that failed is set aside, where chunks are granted", 60)
        page.wait("return [...document.querySelectorAll('#launches .job')].some(e => /rank 2/.test(e.textContent) && /is set aside: .*launch/.test(e.textContent))",
                  "and its rank says why")
        ranks[1].kill()
        ranks[1].wait()
        page.wait("return [...document.querySelectorAll('#queues td')].every(e => e.textContent !== '1 of 3')", "a rank that was killed is gone")
        page.wait("return [...document.querySelectorAll('#launches .job')].some(e => /is lost/.test(e.textContent) && /rescheduled/.test(e.textContent))",
                  "what it had was rescheduled, and why")
        page.run("document.getElementById('launches').scrollIntoView()")
        page.picture("web-launch")
        page.check(len(page.texts("#launches .shares span")) >= 2, "the shares of both ranks' devices are shown")
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def check_token(page, server):
    page.browser.execute_script("sessionStorage.clear()")
    page.open("http://" + server.address + "/#token=" + "0" * 32)
    page.wait("return document.getElementById('notices').textContent.includes('token')",
              "a wrong token is told", faults=4)


def main():
    folder = make_folder("integral.json", "integral.cl")
    server = Server(sys.argv[1], folder)
    page = Page(server)
    program = subprocess.Popen([sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               env={**os.environ, "USM_TRACE": os.path.join(folder, "app.trace")})
    try:
        check_machine(page)
        if "--hwloc" in sys.argv:
            check_tree(page, sys.argv[1], server)
        check_bad_messages(page)
        check_memory(page, program, folder)
        check_jobs(page, server)
        if sys.argv[3:] and sys.argv[3] != "--hwloc":
            check_ranks(page, sys.argv[3], folder)
        check_token(page, server)
    finally:
        program.kill()
        program.stdin.close()
        page.end()
        server.end()
        shutil.rmtree(folder)
    page.report()


if __name__ == "__main__":
    main()
