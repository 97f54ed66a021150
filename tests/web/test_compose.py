#!/usr/bin/env python3
"""test_compose.py USM_WEB CC INCLUDE: an app is drawn, checked, saved, run and watched in a browser; and what may go
wrong meanwhile.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import json
import os
import shutil
import signal
import subprocess
import sys

from browser import ROOT, SAMPLES, Page, Server, make_folder

MARKUP = "<img src=x onerror=document.title='ran'></script><script>document.title='ran'</script>"


def sample(name):
    with open(os.path.join(SAMPLES, name), encoding="utf-8") as file:
        return file.read()


def check_text(page):
    """What was not changed is written as it was."""
    for name in ("integral.json", "md5.json"):
        page.check(page.run("return formatApp(parseJson(arguments[0])).text", sample(name)) == sample(name),
                   f"{name} is written as it was read")
    odd = '{"10": 18446744073709551615, "2": 1.0, "x": [1e-7, -0, null, "\\u003cb\\u003e"], "a": {}}'
    page.check(page.run("return inlineJson(parseJson(arguments[0]))", odd) == odd.replace("\\u003c", "<").replace("\\u003e", ">"),
               "order and spelling of numbers are kept")
    for wrong in ("", "{", "[1,]", '{"a": 1, "a": 2}', "01", "{} x", '"\n"', "[" * 5000):
        line = page.run("try { parseJson(arguments[0]); return 0; } catch (e) { return e.line; }", wrong)
        page.check(line and line >= 1, f"{wrong[:20]!r} is no JSON")


def check_all_kinds(page):
    """Apps with templates, servers and kinds of the user are written as they were read, and each of their fields is known."""
    with open(os.path.join(ROOT, "samples", "templates", "heat.json"), encoding="utf-8") as file:
        apps = [file.read(), sample("md5_server.json")]
    nodes = [{"name": kind, "kind": kind, "library": "t.so", "template": kind, "param": {"from": "valkey:p", "size": 4},
              "width": 4, "steps": 2, "grain": 8, "count": 9, "work": 1.5, "output": {"to": f"valkey:{kind}", "print": "u32"}}
             for kind in ("map", "map_reduce", "stencil", "scan", "search", "master_worker", "iterate")]
    nodes += [{"name": kind + "2", "kind": kind, "in": {"type": "struct s", "bytes": 12}, "out": "f64", "head": "s.h", "radius": 2,
               "param_type": "f32", "body": ["return \"a\\n\";\n", "x"]} for kind in ("map_reduce", "iterate")]
    nodes.append({"name": "line", "kind": "pipeline", "batch": 64, "output": {"file": "a"}, "stages": [
        {"in": "u8", "out": "f32", "body": "return x;"}, {"library": "t.so", "template": "t", "kind": "master_worker"}]})
    nodes += [{"name": "own", "kind": "brute_force", "kernels": ["k", "k"]},
              {"name": "in", "kind": "input", "data": [{"from": "valkey:a:b", "size": 16}, {"hex": "00"}]}]
    apps.append(page.run("return formatApp(parseJson(arguments[0])).text",
                         json.dumps({"types": "kinds", "policy": "static", "stores": {"valkey": "h:1,tls"}, "nodes": nodes, "edges": []})))
    for text in apps:
        set_text(page, text)
        page.check(page.run("return app.text") == text, f"it is written as it was read: {text[:60]}")
        unknown = page.run("""const all = [];
            nodesOf().forEach((n, i) => { view.choose({ node: i });
                for (const e of document.querySelectorAll('#inspector small')) if (e.textContent.includes('does not know')) all.push(e.parentNode.dataset.field); });
            view.choose(null);
            return all;""")
        page.check(unknown == [], f"fields that are not known: {unknown}")
        page.check(page.run("return app.text") == text, "looking at nodes changes nothing")


def change(page, selector, value):
    page.run("const e = document.querySelector(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('change'));", selector, value)


def press(page, text):
    page.run("[...document.querySelectorAll('#palette button')].find(b => b.firstChild.data === arguments[0]).click()", text)


def compose_templates(page, folder):
    """Each template is right as the palette makes it; numbers go through two of them, are saved, opened and run."""
    kinds = ["map", "map_reduce", "stencil", "scan", "search", "master_worker", "iterate", "pipeline"]
    # In one script, so that it is checked once: each check compiles them all.
    page.run("""const change = (selector, value) => { const e = document.querySelector(selector); e.value = value; e.dispatchEvent(new Event('change')); };
        const press = text => [...document.querySelectorAll('#palette button')].find(b => b.firstChild.data === text).click();
        document.getElementById('app-new').click();
        press('Numbers');
        change('.piece textarea', '1, 2, 3, 4');
        arguments[0].forEach((kind, k) => {
            press(kind);
            change('#inspector [data-field=output] input', kind === 'search' ? 'i64' : 'f32');
            connect(0, k + 1);
        });
        document.getElementById('check').dataset.state = 'asked';""", kinds)
    checked(page, "good")
    page.run("document.getElementById('app-new').click()")
    press(page, "Numbers")
    change(page, ".piece textarea", "1, 2, 3, 4")
    press(page, "map")
    change(page, "#inspector [data-field=body] textarea", "float two = 2.0f;\nreturn two * x + p;")
    page.run("document.querySelector('#inspector [data-field=param] > button').click()")
    change(page, "#inspector [data-field=param] textarea", "0.5")
    press(page, "iterate")
    change(page, "#inspector [data-field=kind] select", "map_reduce")
    page.check(page.run("return [...document.querySelectorAll('#inspector [data-field=body] textarea')].map(e => e.value)")
               == ["return x;", "return a + b;"], "another kind has other bodies")
    page.run("const e = document.querySelectorAll('#inspector [data-field=body] textarea')[1]; e.value = 'return a * b;'; e.dispatchEvent(new Event('change'));")
    change(page, "#inspector [data-field=output] input", "f32")
    press(page, "pipeline")
    change(page, "#inspector [data-field=batch] input", "3")
    page.run("[...document.querySelectorAll('#inspector button')].find(b => b.textContent === 'Add a stage').click()")
    page.run("const e = document.querySelectorAll('#inspector [data-field=body] textarea')[2]; e.value = 'return 3.0f * x;'; e.dispatchEvent(new Event('change'));")
    page.run("[...document.querySelectorAll('#inspector button')].find(b => b.textContent === 'Remove stage 1').click()")
    change(page, "#inspector [data-field=output] input", "f32")
    page.run("document.getElementById('check').dataset.state = 'asked'; connect(0, 1); connect(1, 2); connect(1, 3)")
    checked(page, "good")
    page.run("save('product.json')")
    page.wait("return app.path === 'product.json' && document.getElementById('app-state').textContent === 'saved'", "it is saved")
    with open(os.path.join(folder, "product.json"), encoding="utf-8") as file:
        text = file.read()
    nodes = {n["name"]: n for n in json.loads(text)["nodes"]}
    page.check(nodes["map"]["body"] == "float two = 2.0f;\nreturn two * x + p;" and nodes["map"]["param"] == {"numbers": [0.5], "type": "f32"},
               f"the map: {nodes['map']}")
    page.check(nodes["iterate"] == {"name": "iterate", "kind": "map_reduce", "in": "f32", "out": "f32", "body": ["return x;", "return a * b;"], "output": {"print": "f32"}}, f"what a change of kind left: {nodes['iterate']}")
    page.run("return openApp('product.json')")
    page.check(page.run("return app.text") == text and page.run("return app.saved") == text, "and is as it was saved")
    page.check(nodes["pipeline"]["stages"] == [{"in": "f32", "out": "f32", "body": "return x;"}, {"in": "f32", "out": "f32", "body": "return 3.0f * x;"}]
               and nodes["pipeline"]["batch"] == 3, f"the pipeline: {nodes['pipeline']}")
    page.run("document.getElementById('run').dataset.state = ''; document.getElementById('app-run').click()")
    run_state(page, "done")
    page.wait("return document.getElementById('run-result').textContent.includes('7.5 13.5 19.5 25.5')", "the result is shown")


def check_servers(page):
    """Keys of data servers are shown and changed."""
    set_text(page, sample("md5_server.json"))
    page.run("view.choose({ node: 0 })")
    shown = page.run("return [...document.querySelectorAll('.piece')].map(p => p.querySelector('select').value + ' ' + p.querySelector('input, textarea').value)")
    page.check(shown == ["from valkey:md5:digest", "numbers 0, 475254"], f"the pieces: {shown}")
    change(page, ".piece input", "valkey:other")
    page.run("view.choose({ node: 3 })")
    page.check(page.run("return document.querySelector('#inspector [data-field=to] input').value") == "valkey:md5:found", "where the result goes")
    change(page, "#inspector [data-field=to] input", "valkey:x, y")
    page.run("view.choose(null)")
    change(page, "#inspector [data-field=store-valkey] input", "cache1:6380")
    want = sample("md5_server.json")
    for old, new in (("md5:digest", "other"), ("md5:found", "x, y"), ("127.0.0.1:6379", "cache1:6380")):
        want = want.replace(old, new)
    page.check(page.run("return app.text") == want, "only that is changed: " + page.run("return app.text"))
    page.wait("return [...document.querySelectorAll('#check .fault')].some(e => e.textContent.includes('command line'))", "that usm-web has to know the server is told")


def checked(page, state):
    page.wait("return document.getElementById('check').dataset.state === '" + state + "'", "the check says " + state)


def set_text(page, text):
    page.run("document.getElementById('check').dataset.state = 'asked';"
             "document.getElementById('text').value = arguments[0];"
             "document.getElementById('text').dispatchEvent(new Event('input'));", text)


def run_state(page, state, seconds=60):
    page.wait("return document.getElementById('run').dataset.state === '" + state + "'", "the run is " + state, seconds)


def compose(page, folder):
    """From nothing to a result."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    find = lambda selector: page.browser.find_element(By.CSS_SELECTOR, selector)

    def set_field(name, value):
        e = find(f"#inspector [data-field='{name}'] input")
        e.clear()
        e.send_keys(value + Keys.TAB)

    def wire(start, end):
        page.wait(f"return document.querySelector('[data-out=\"{start}\"]') && document.querySelector('[data-in=\"{end}\"]')",
                  "the nodes can be connected")
        page.run("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        points = page.run("""return [...arguments].map(s => document.querySelector(s).getBoundingClientRect())
            .map(r => [Math.round(r.x + r.width / 2), Math.round(r.y + r.height / 2)])""",
                          f"[data-out='{start}']", f"[data-in='{end}']")
        actions = ActionBuilder(page.browser)
        actions.pointer_action.move_to_location(*points[0]).pointer_down()
        actions.pointer_action.move_to_location(points[1][0] - 20, points[1][1]).move_to_location(*points[1]).pointer_up()
        actions.perform()

    page.run("document.getElementById('app-new').click()")
    press(page, "Numbers")
    page.run("""const [value] = document.querySelectorAll('.piece textarea'), [, type] = document.querySelectorAll('.piece select');
        value.value = '0, 1'; value.dispatchEvent(new Event('change'));""")
    page.run("document.querySelector('[data-field=data] > button').click()")
    page.run("""const value = document.querySelectorAll('.piece textarea')[1], type = document.querySelectorAll('.piece select')[3];
        value.value = '1048576, 0'; value.dispatchEvent(new Event('change'));
        type.value = 'u32'; type.dispatchEvent(new Event('change'));""")
    press(page, "partitionData")
    press(page, "processData")
    page.run("const k = document.querySelector('[data-field=kind] select'); k.value = 'expandable'; k.dispatchEvent(new Event('change'));")
    set_field("out_size", "256")
    set_field("global", "64")
    press(page, "mergeData")
    set_field("output", "f32")
    page.run("document.getElementById('app-arrange').click()")
    for k in range(3):
        wire(k, k + 1)
    checked(page, "good")
    page.run("save('mine.json')")
    page.wait("return document.getElementById('app-state').textContent === 'saved'", "it is saved")
    with open(os.path.join(folder, "mine.json"), encoding="utf-8") as file:
        app = json.load(file)
    page.check([n["kind"] for n in app["nodes"]] == ["input", "partition", "expandable", "merge"], f"the file: {app}")
    page.check(app["edges"] == [["data", "cut"], ["cut", "work"], ["work", "merge"]], f"its edges: {app['edges']}")
    # A mistake is shown at its field.
    page.run("view.choose({ node: 2 })")
    set_field("out_size", "-5")
    # Clearing the field was a change, too, with a mistake of its own: the check says "wrong" of it first.
    page.wait("return [...document.querySelectorAll('#inspector [data-field=out_size] .fault')].some(e => e.textContent.includes('whole number'))",
              "the mistake is at its field")
    page.run("undo(); undo()") # clear() of the field was a change, too
    checked(page, "good")
    page.run("document.getElementById('app-run').click()")
    run_state(page, "done")
    page.wait("return document.getElementById('run-result').textContent.includes('3.14159')", "the result is shown")
    page.wait("return view.states.length === 4 && view.states.every(s => s === 'done')", "all nodes are done")
    # By keyboard: the chosen node moves, and is removed.
    page.run("view.choose({ node: 0 })")
    before = page.run("return app.places[0][0]")
    find("#canvas").send_keys(Keys.ARROW_RIGHT)
    page.check(page.run("return app.places[0][0]") == before + 10, "an arrow key moves a node")
    find("#canvas").send_keys(Keys.DELETE)
    page.check(page.run("return nodesOf().length + ':' + edgesOf().length") == "3:2", "Delete removes it and its edges")
    page.run("undo()")
    checked(page, "good")


def check_names(page):
    """Names with markup are text, wherever they are shown."""
    app = json.loads(sample("integral.json"))
    app["name"] = MARKUP
    app["nodes"][1]["name"] = app["edges"][0][1] = app["edges"][1][0] = MARKUP
    app["nodes"][1]["part_size"] = MARKUP
    app["nodes"][2]["kernel"] = MARKUP
    set_text(page, json.dumps(app))
    checked(page, "wrong")
    page.run("view.choose({ node: 1 })")
    page.wait("return document.querySelector('.node.wrong')", "the node is marked")
    page.check(page.run("return document.title") == "usm: compose", "no script ran from a name")
    page.check(page.run("return document.querySelectorAll('img, main script').length") == 0, "no element was made of a name")
    page.check(any(MARKUP in t for t in page.texts("#check .fault")), "the name is told as it is")


def children(server):
    said = subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.process.pid)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in said.stdout.split()]


def check_ends(page, server):
    """A run that is stopped, one that is killed, a server that ends."""
    slow = sample("integral.json").replace("1048576", "4294967295").replace('"parts": 8', '"parts": 4000')
    for end in ("stopped", "killed"):
        set_text(page, slow)
        page.run("view.whole(); view.choose({ node: 2 })")
        checked(page, "good")
        page.run("document.getElementById('run').dataset.state = ''; document.getElementById('app-run').click()")
        page.wait("return view.states.includes('running')", "a node runs")
        if end == "stopped":
            page.wait("return run.shares[2] > 0", "it gets on")
            page.run("scrollTo(0, 0)")
            page.picture("web-compose")
            page.run("document.getElementById('app-stop').click()")
            run_state(page, "stopped")
            continue
        for pid in children(server):
            os.kill(pid, signal.SIGKILL)
        run_state(page, "failed")
        page.check("was killed" in page.run("return document.getElementById('run-text').textContent"), "that it was killed is told")


def check_files(page, folder):
    """What a run writes is shown; a file outside of the folder is not written."""
    app = json.loads(sample("integral.json"))
    app["nodes"][3]["output"] = {"file": "pi.f32"}
    set_text(page, json.dumps(app))
    checked(page, "good")
    page.run("document.getElementById('run').dataset.state = ''; document.getElementById('app-run').click()")
    run_state(page, "done")
    page.wait("return document.getElementById('run-result').textContent.includes('3.14159')", "numbers of a file are shown")
    page.check(os.path.getsize(os.path.join(folder, "pi.f32")) == 4, "the file is in the folder")
    app["nodes"][3]["output"] = {"file": "../pi.f32"}
    set_text(page, json.dumps(app))
    checked(page, "good")
    page.run("document.getElementById('run').dataset.state = ''; document.getElementById('app-run').click()")
    run_state(page, "failed")
    page.check("outside" in page.run("return document.getElementById('run-messages').textContent"), "a file outside is refused")
    page.check(not os.path.exists(os.path.join(folder, "..", "pi.f32")), "and not written")
    with open(os.path.join(folder, "image.ppm"), "wb") as file:
        file.write(b"P6\n2 1\n255\n" + bytes([255, 0, 0, 0, 255, 0]))
    size = page.run("""return drawImage(new Uint8Array(await (await ask('GET', '/api/file?path=image.ppm')).arrayBuffer()),
        document.body.appendChild(Object.assign(document.createElement('canvas'), { id: 'seen' })))
        .then(() => { const c = document.getElementById('seen'), p = c.getContext('2d').getImageData(0, 0, 2, 1).data;
            return [c.width, c.height, p[0], p[5]]; })""")
    page.check(size == [2, 1, 255, 255], f"an image is drawn: {size}")


def check_sample(page, folder):
    """A sample is copied to the folder, and opened."""
    page.run("const e = document.getElementById('app-list'); e.value = 'sample:md5'; e.dispatchEvent(new Event('change'));")
    page.wait("return app.path === 'md5.json' && document.getElementById('app-list').value === 'md5.json'", "a sample is opened")
    with open(os.path.join(folder, "md5.json"), encoding="utf-8") as file:
        page.check(file.read() == sample("md5.json"), "it is in the folder")
    checked(page, "good")


NATIVE = """
#include <usm/program.h>
#define KERNEL(f) void f(const usm_range *range, void *const *args); void f(const usm_range *range, void *const *args)
#define IN   (*(unsigned char **)args[0])
#define SIZE (*(unsigned *)args[1])
KERNEL(processData)
{
    unsigned sum = 0;
    for (unsigned i = 0; range->begin[0] == 0 && i < SIZE; i++)
        sum += IN[i];
    if (range->begin[0] == 0)
        **(unsigned **)args[2] = sum;
}
"""


def check_native(page, folder, compiler, include):
    """On the host alone: a kernel in a library of the folder."""
    source = os.path.join(folder, "kernels.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(NATIVE)
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{ROOT}/include", f"-I{include}", "-o",
                    os.path.join(folder, "kernels.so"), source], check=True)
    app = {"kernels": {"k": {"library": "kernels.so"}},
           "nodes": [{"name": "in", "kind": "input", "data": {"text": "abc"}},
                     {"name": "sum", "kind": "process", "kernel": "k", "out_size": 4, "output": {"print": "u32"}}],
           "edges": [["in", "sum"]]}
    set_text(page, json.dumps(app))
    checked(page, "good")
    page.run("document.getElementById('app-run').click()")
    run_state(page, "done")
    page.wait("return document.getElementById('run-result').textContent.includes('294')", "the result is shown")
    page.check("host:0" in page.run("return document.getElementById('run-shares').textContent"), "the host did it")


def check_large(page):
    """10,000 nodes, on a cycle."""
    n = 10000
    nodes = [{"name": f"n{i}", "kind": "process", "kernel": "k", "out_size": 4} for i in range(n)]
    edges = [[f"n{i}", f"n{i + 1}"] for i in range(n - 1)]
    app = {"kernels": {"k": {"file": "integral.cl"}}, "nodes": nodes, "edges": edges + [[f"n{n - 1}", "n0"]]}
    set_text(page, json.dumps(app))
    page.run("view.whole()")
    page.wait("return document.querySelectorAll('.far').length > 0", "far away, nodes are squares")
    checked(page, "wrong")
    page.check(page.run("return nodesOf().length") == n, "all nodes are there")
    page.run("view.scale = 1; view.x = -view.places[5000][0] + 100; view.y = -view.places[5000][1] + 100; view.draw()")
    page.wait("return document.querySelectorAll('.node').length > 0", "near, they are boxes")


def check_all(page, server, folder):
    page.wait("return document.querySelectorAll('#palette-kernels button').length === 3", "the kernels are listed")
    page.wait("return app.path === 'integral.json'", "the app of the folder is opened")
    checked(page, "good")
    check_text(page)
    check_all_kinds(page)
    check_servers(page)
    compose_templates(page, folder)
    compose(page, folder)
    check_names(page)
    check_files(page, folder)
    check_sample(page, folder)
    check_ends(page, server)
    check_large(page)
    server.end()
    page.wait("return document.getElementById('link').dataset.state === 'lost'", "that the server has ended is told", faults=9)


def main():
    is_host = os.environ.get("USM_TEST_RUNTIME") == "host"
    folder = make_folder(*([] if is_host else ["integral.json", "integral.cl"]))
    server = Server(sys.argv[1], folder)
    page = Page(server)
    try:
        page.run("location.hash = 'compose'")
        page.wait("return document.getElementById('compose').dataset.state === 'drawn'", "it is drawn")
        if is_host:
            check_native(page, folder, *sys.argv[2:])
        else:
            check_all(page, server, folder)
    finally:
        page.end()
        server.end()
        shutil.rmtree(folder)
    page.report()


if __name__ == "__main__":
    main()
