#!/usr/bin/env python3
"""test_memory.py USM_WEB PROGRAM: the section Memory in a browser, over 10,000 blocks.  PROGRAM is blocks_app.c.

How many frames a second are drawn and how old what is drawn is are printed, not judged: a test says only that both
are of the order that they should have, since the machine may be busy.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import json
import os
import shutil
import subprocess
import sys
import time

from browser import Page, Server, make_folder

MIB = 1 << 20
MARKUP = "</script><script>document.title='ran'</script>"


class Program:
    """PROGRAM, which obeys words."""

    def __init__(self, path, **environment):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})
        self.pid = self.process.pid
        self.heard("ready")

    def heard(self, word):
        line = self.process.stdout.readline()
        if line.strip() != word:
            raise RuntimeError(f"the program said {line!r} instead of {word!r}")

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        self.heard(word)

    def end(self):
        self.process.kill()
        self.process.communicate()


def choose(page, pid):
    page.wait(f"return [...document.querySelectorAll('#processes tbody tr')].some(tr => rowPid(tr) === {pid})", f"process {pid} is listed")
    page.run(f"chooseProcess({pid})")
    page.wait("return memoryView.layout && memoryView.layout.pools.some(p => p.name.includes('device'))", "its addresses are drawn")


def used_of_device(page):
    """Bytes in use and of memory of the device's pools, by the cells that are drawn."""
    return page.run("""const map = shownMap(), p = shownSample().process, sum = { used: 0, memory: 0, live: 0 };
        for (const l of layOutMap(map, 800).pools) {
            const pool = p.pools.find(q => q.id === l.id);
            if (!pool || pool.kind !== 'device') continue;
            const s = mapSums(l);
            sum.used += s.used; sum.memory += s.memory; sum.live += pool.live;
        }
        return sum;""")


def check_map(page, program):
    """What is drawn is what the pool has, and follows it."""
    page.check(page.run("return shownSample().process.pools.some(p => p.kind === 'device' && p.blocks >= 10000)"), "it has 10,000 blocks")
    full = used_of_device(page)
    page.check(full["live"] <= full["used"] * 1.02 and full["used"] <= full["live"] * 1.1 + 40 * MIB,
               f"the cells add up to what is live, and what caches keep: {full}")
    program.tell("half")
    page.wait(f"return shownSample().process.live < {full['live'] * .6}", "half of it is freed")
    page.run("window.seen = shownSample().time")
    page.wait("return shownMap().taken_ns > window.seen && memoryView.drawn.sampled > window.seen", "a map is taken after that")
    page.check(page.run("return [...document.querySelectorAll('#memory-map canvas')].every(c => c.width > 0 && c.height > 30)"), "it is drawn")
    half = used_of_device(page)
    page.check(half["used"] < full["used"] * .75, f"the cells show it: {full} became {half}")
    # The picture itself, not only its data: cells of several shades are on the canvas.
    shades = page.run("""const c = $('memory-map').children[0], d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
        for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
        return seen.size""")
    page.check(shades > 10, f"the canvas has {shades} shades")


def check_frames(page, program):
    """10,000 blocks, some hundred of which change places between two frames, after five minutes."""
    program.tell("work")
    made = page.run("""const list = chosenHistory(), first = list[0], made = SAMPLES_MAX - 100 - list.length;
        list.unshift(...Array.from({ length: made }, (_, k) => ({ time: first.time - (made - k) * 1e8, process: first.process })));
        return made""")
    page.run("document.getElementById('memory-map-part').scrollIntoView()")
    before = page.run("return memoryView.drawn.time")
    frames, longest = page.browser.execute_async_script("""const done = arguments[0], from = performance.now(); let n = 0, last = from, longest = 0;
        const frame = now => { n++; longest = Math.max(longest, now - last); last = now;
            if (now - from < 1000) requestAnimationFrame(frame); else done([n / (now - from) * 1000, longest]); };
        requestAnimationFrame(frame)""")
    cost = page.run("""const times = []; for (let k = 0; k < 20; k++) { const t = performance.now(); drawSamples(); times.push(performance.now() - t); }
        return times.sort((a, b) => a - b)[10]""")
    load = os.getloadavg()[0]
    print(f"{frames:.1f} frames/s, the longest {longest:.0f} ms; drawing takes {cost:.1f} ms; load {load:.1f}")
    page.check(frames > 5, f"{frames} frames a second")
    page.check(page.run("return memoryView.drawn.time") > before, "samples were drawn meanwhile")
    page.run("chosenHistory().splice(0, arguments[0])", made)


def check_delay(page):
    """From the sample in the process to its picture, by the clock that both have."""
    ages = []
    for _ in range(7):
        begin = time.monotonic_ns()
        now = page.run("return performance.now()")
        end = time.monotonic_ns()
        page.run("window.seen = shownMap().sampled_ns")
        sampled, drawn = page.wait("const d = memoryView.drawn; return d.sampled > window.seen && [d.sampled, d.at]", "another sample is drawn")
        ages.append((drawn - now) + ((begin + end) / 2 - sampled) / 1e6)
    ages.sort()
    print(f"drawn {ages[len(ages) // 2]:.0f} ms after the sample (median; {ages[0]:.0f} to {ages[-1]:.0f}); load {os.getloadavg()[0]:.1f}")
    page.check(-20 < ages[len(ages) // 2] < 2000, f"what is drawn is {ages} ms old")


def check_keyboard(page, pids):
    """Without a pointer: a process is chosen, frozen, scrubbed, its map walked, and the focus stays where it is."""
    from selenium.webdriver.common.keys import Keys

    active = lambda: page.browser.switch_to.active_element
    page.run("document.querySelector('#processes tbody tr').focus()")
    for _ in range(len(pids)):
        if page.run("return rowPid(document.activeElement)") == pids[1]:
            break
        active().send_keys(Keys.TAB)
    active().send_keys(Keys.ENTER)
    page.check(page.run("return memory.chosen") == pids[1], "Enter chooses a process")
    page.run("window.updates = chosenHistory().length")
    page.wait("return chosenHistory().length > window.updates + 3", "samples come")
    page.check(page.run("return document.activeElement.closest('#processes') !== null"), "the focus stays in the list")
    choose(page, pids[0])
    visited = []
    page.run("document.getElementById('memory-freeze').focus()")
    active().send_keys(Keys.SPACE)
    page.check(page.run("return memoryView.isFrozen"), "Space freezes")
    page.wait("return +document.getElementById('memory-scrub').value === shownIndex()", "the slider is at what is shown")
    for _ in range(12):
        active().send_keys(Keys.TAB)
        visited.append(page.run("const e = document.activeElement; return e.id || e.parentElement.id"))
    for wanted in ("memory-scrub", "memory-tables", "memory-page", "memory-perfetto", "memory-save", "memory-map", "memory-sites-ask"):
        page.check(wanted in visited, f"Tab reaches {wanted}: {visited}")
    page.run("document.getElementById('memory-scrub').focus()")
    last = page.run("return shownIndex()")
    active().send_keys(Keys.ARROW_LEFT + Keys.ARROW_LEFT)
    page.check(page.run("return shownIndex()") == last - 2, "arrow keys go back")
    page.wait("return document.getElementById('memory-moment').textContent.includes('ago')", "and the page says how far")
    page.run("document.querySelector('#memory-map canvas.over').focus()")
    said = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.END, Keys.PAGE_DOWN):
        active().send_keys(key)
        said.append(page.texts("#memory-cell")[0])
    page.check(all(text.startswith("0x") and " of slab " in text for text in said) and len(set(said)) == 5, f"cells are told: {said}")
    first, second = (int(text.split(",")[0], 16) for text in said[:2])
    page.check(second > first, "to the right are higher addresses")


def check_alternatives(page):
    """Each drawing has a table, and a canvas says so."""
    page.check(page.run("return [...document.querySelectorAll('#memory canvas:not(.over)')].every(c => c.getAttribute('role') === 'img' && c.ariaLabel.includes('table'))"),
               "drawings have a text")
    heads = page.texts("#memory-line-table thead th")
    page.check(heads[:2] == ["moment", "reserved"] and any("device" in h for h in heads), f"the timeline as a table: {heads}")
    page.check(page.run("return document.getElementById('memory-line-table').tBodies[0].rows.length") >= 5, "it has moments")
    rows = page.run("return [...document.getElementById('memory-map-table').tBodies[0].rows].map(r => [...r.children].map(c => c.textContent))")
    page.check(any("device" in r[0] and r[1].startswith("0x") and "MiB" in r[4] and "MiB" in r[5] for r in rows), f"the map as a table: {rows}")
    page.check(heads[2:] == page.texts("#memory-legend span")[:-1], f"pools have the names of the legend: {heads}")
    hidden = "const r = document.getElementById('memory-map-table').parentElement.getBoundingClientRect(); return r.width"
    page.check(page.run(hidden) <= 1, "the tables take no room")
    nodes = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    told = {n.get("name", {}).get("value") for n in nodes if not n.get("ignored") and n["role"]["value"] == "table"}
    page.check({"Addresses of each pool", "Live bytes by pool, and reserved bytes, over time"} <= told, f"and are there for screen readers: {told}")
    page.run("document.getElementById('memory-tables').click()")
    page.check(page.run(hidden) > 200, "who wants to see them does")
    page.picture("web-memory-tables")
    page.run("document.getElementById('memory-tables').click()")


def check_sites(page, traced, plain):
    """Who holds the memory, of a process with a trace and of one without."""
    choose(page, traced.pid)
    page.run("document.getElementById('memory-sites-ask').click()")
    page.wait("return !document.getElementById('memory-sites-ask').disabled", "the trace is read")
    rows = page.run("return [...document.getElementById('memory-sites').tBodies[0].rows].map(r => [...r.children].map(c => c.textContent))")
    page.check(rows and "grow_tree" in rows[0][0] and "MiB" in rows[0][1], f"the function that holds most is first: {rows[:2]}")
    page.run("document.getElementById('memory-sites').scrollIntoView({ block: 'end' })")
    page.picture("web-memory-sites")
    choose(page, plain.pid)
    page.check(not page.texts("#memory-sites tbody tr"), "another process has not these")
    page.run("document.getElementById('memory-sites-ask').click()")
    page.wait("return document.getElementById('memory-sites-note').textContent.includes('USM_TRACE=')", "without a trace the page says how to get one", faults=1)


def check_saved(page, folder):
    """The page and the counters that are saved have what is shown."""
    page.run("window.saved = {}; saveText = (name, ...parts) => { window.saved[name.slice(name.indexOf('.'))] = parts.join(''); }")
    page.run("freeze(true)")
    page.run("for (const id of ['memory-page', 'memory-perfetto', 'memory-save']) document.getElementById(id).click()")
    page.wait("return window.saved['.html'] && window.saved['.perfetto.json'] && window.saved['.json']", "all three are saved")
    saved = page.run("return window.saved")
    shown, live = page.run("return [shownHistory().length, shownSample().process.live]")
    page.check(len(json.loads(saved[".json"])) == shown, "the samples as JSON")
    events = json.loads(saved[".perfetto.json"])["traceEvents"]
    counters = [e for e in events if e["ph"] == "C" and "pool" in e["name"]]
    page.check(sum(e["args"]["live"] for e in counters if e["ts"] == max(c["ts"] for c in counters)) == live, "counters for Perfetto")
    page.check(sorted(e["ts"] for e in counters) == [e["ts"] for e in counters] and events[0]["args"]["name"] == "blocks_app", "in order, with the program's name")
    path = os.path.join(folder, "memory.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(saved[".html"])
    address = page.browser.current_url
    page.open("file://" + path)
    page.wait("return document.documentElement.dataset.state === 'drawn'", "the saved page draws")
    page.check(page.run("return shownSample().process.live") == live, "what was shown")
    page.check(page.run("return memoryView.layout.pools.length") >= 2, "with the map")
    page.check(MARKUP in page.texts("#memory-tags th") and page.run("return document.title") != "ran", "a tag with markup is text")
    page.check(not page.run("return document.querySelector('#memory-freeze, #memory-sites')"), "without what only a live page can do")
    page.run("const e = document.getElementById('memory-scrub'); e.value = 0; e.dispatchEvent(new Event('input'))")
    page.wait("return document.getElementById('memory-moment').textContent.includes('ago')", "it goes back in time")
    page.check(page.run("return performance.getEntriesByType('resource').length") == 0, "and fetches nothing")
    page.picture("web-memory-saved")
    page.open(address + "#memory")


def check_looks(page, pid):
    """Dark and light, wide and as narrow as a phone."""
    backs = {}
    for scheme in ("dark", "light"):
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        page.wait("return matchMedia('(prefers-color-scheme: dark)').matches === " + str(scheme == "dark").lower(), f"{scheme} colours")
        page.run("window.seen = memoryView.drawn.at")
        page.wait("return memoryView.drawn.at > window.seen", "it is drawn anew")
        backs[scheme] = page.run("""const c = $('memory-map').children[0], L = memoryView.layout, p = L.pools[0];
            const d = c.getContext('2d').getImageData(L.size * memoryView.stage.ratio - 1, (p.y + 1) * memoryView.stage.ratio, 1, 1).data;
            return [getComputedStyle(document.body).backgroundColor, 'rgb(' + d[0] + ', ' + d[1] + ', ' + d[2] + ')']""")
        page.check(backs[scheme][0] == backs[scheme][1], f"the lines between cells have the colour of the page: {backs}")
        page.run("document.getElementById('memory-title').scrollIntoView()")
        page.picture("web-memory" + ("" if scheme == "light" else "-dark"))
    page.check(backs["dark"] != backs["light"], "the two differ")
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
    choose(page, pid)
    page.run("window.seen = memoryView.drawn.at")
    page.wait("return memoryView.drawn.at > window.seen", "it is drawn on a phone")
    wide = page.run("""return [...document.querySelectorAll('#memory *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
        && !e.closest('.scroll') && e.getClientRects().length).map(e => e.id || e.className || e.tagName)""")
    page.check(not wide and page.run("return document.documentElement.scrollWidth") <= 360, f"nothing is wider than a phone: {wide}")
    for name, target in (("top", "memory-heading"), ("line", "memory-title"), ("map", "memory-map-part")):
        page.run("document.getElementById(arguments[0]).scrollIntoView()", target)
        page.picture("web-memory-phone-" + name)
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def main():
    folder = make_folder()
    server = Server(sys.argv[1], folder)
    page = Page(server)
    programs = []
    try:
        programs.append(Program(sys.argv[2]))
        programs.append(Program(sys.argv[2], USM_TRACE=os.path.join(folder, "blocks.trace"), USM_TRACE_STACKS="all"))
        plain, traced = programs
        page.run("location.hash = 'memory'")
        choose(page, plain.pid)
        check_map(page, plain)
        check_frames(page, plain)
        check_delay(page)
        check_looks(page, plain.pid)
        check_keyboard(page, [plain.pid, traced.pid])
        check_alternatives(page)
        check_sites(page, traced, plain)
        check_saved(page, folder)
    finally:
        page.end()
        for program in programs:
            program.end()
        server.end()
        shutil.rmtree(folder)
    page.report()


if __name__ == "__main__":
    main()
