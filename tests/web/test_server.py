#!/usr/bin/env python3
"""test_server.py USM_WEB: who may ask usm-web, for what, and what it says otherwise.  No browser.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

from browser import ROOT, Server, make_folder

FAILED = []


def check(is_right, what):
    if not is_right:
        FAILED.append(what)
        print("FAILED: " + what)


def error_of(answer):
    return json.loads(answer[2])["error"]


def check_scripts():
    """The page's scripts share one scope: a function that two of them define is the last one's."""
    folders = (os.path.join(ROOT, "tools", "usm-web", "page"), os.path.join(ROOT, "src", "profile"))
    defined = {}
    for path in (os.path.join(folder, name) for folder in folders for name in os.listdir(folder) if name.endswith(".js")):
        with open(path, encoding="utf-8") as file:
            for name in re.findall(r"^(?:async )?(?:function|const|let) (\w+)", file.read(), re.MULTILINE):
                defined.setdefault(name, set()).add(os.path.basename(path))
    twice = {name: sorted(files) for name, files in defined.items() if len(files) > 1}
    check(len(defined) > 100 and not twice, f"each name of the page is defined once: {twice}")


def check_requests(server):
    """Token, Host, Origin, methods, addresses."""
    check(server.request("GET", "/", token="")[0] == 200, "the page needs no token")
    check("'self'" in server.request("GET", "/")[1]["Content-Security-Policy"], "policy of the page")
    for token in ("", server.token[:-1], server.token[:-1] + "x", server.token + "0", "0" * 32):
        answer = server.request("GET", "/api/files", token=token)
        check(answer[0] == 401 and "token" in error_of(answer), f"token {token!r} is refused")
    check(server.request("GET", "/api/files")[0] == 200, "the token is enough")
    for name in ("example.org", f"example.org:{server.port}", "127.0.0.1", f"127.0.0.1.example.org:{server.port}"):
        check(server.request("GET", "/api/files", Host=name)[0] == 403, f"host {name} is refused")
    check(server.request("GET", "/api/files", Host=f"localhost:{server.port}")[0] == 200, "localhost")
    for origin in ("http://example.org", "null", f"https://127.0.0.1:{server.port}", "http://127.0.0.1:1"):
        check(server.request("POST", "/api/check", b"{}", Origin=origin)[0] == 403, f"origin {origin}")
    check(server.request("GET", "/api/files", Sec_Fetch_Site="cross-site")[0] == 403, "another site")
    for path in ("/api/map", "/api/sites"):
        check(server.request("GET", path + "?pid=1", token="")[0] == 401, f"{path} without a token")
        for pid in ("", "?pid=", "?pid=x", "?pid=1", "?pid=-1", "?pid=4294967297"):
            answer = server.request("GET", path + pid)
            check(answer[0] == 404 and "no process of yours" in error_of(answer), f"{path}{pid}: {answer}")
    check(server.request("DELETE", "/api/files")[0] == 405, "a method that is none")
    check(server.request("GET", "/api/nothing")[0] == 404, "an address that is none")


def check_machine(tool, folder):
    """The machine, and no driver is loaded to see it: usm-info does that, in a process that may fail."""
    server = Server(tool, folder, environment={"HWLOC_PLUGINS_VERBOSE": "1"})
    try:
        status, seen = server.json("GET", "/api/topology")
        check(status == 200 and len(seen["cpus"]) >= 1 and seen["memory"] > 0, f"the machine: {seen}")
        server.process.terminate()
        loaded = set(re.findall(r"Plugin descriptor `(\w+)' ready", server.process.stderr.read()))
        check(loaded <= {"hwloc_pci", "hwloc_xml_libxml"}, f"hwloc's plugins of drivers: {loaded}")
    finally:
        server.end()


def check_files(server, folder):
    """Files outside of the folder stay outside, by whichever name."""
    outside = os.path.join(os.path.dirname(folder), os.path.basename(folder) + ".outside")
    with open(outside, "w", encoding="utf-8") as file:
        file.write("outside")
    os.symlink(outside, os.path.join(folder, "link"))
    os.symlink("/", os.path.join(folder, "root"))
    names = ("../" + os.path.basename(outside), outside, "link", "root/etc/passwd", "/etc/passwd", "a/../../b")
    for name in names:
        for answer in (server.request("GET", "/api/file?path=" + name),
                       server.request("PUT", "/api/file?path=" + name, b"mine") if name != "link" else (403,)):
            check(answer[0] in (403, 404), f"{name} is refused: {answer}")
    with open(outside, encoding="utf-8") as file:
        check(file.read() == "outside", "a file outside is untouched")
    os.unlink(outside)
    os.unlink(os.path.join(folder, "root"))
    os.unlink(os.path.join(folder, "link"))
    os.makedirs(os.path.join(folder, "sub"), exist_ok=True)
    check(server.request("PUT", "/api/file?path=sub/x.json", b"{}")[0] == 200, "a file is saved")
    check(server.request("GET", "/api/file?path=sub/x.json")[2] == b"{}", "and read")
    answer = server.request("PUT", "/api/file?path=sub/x.json", b"[]", If_None_Match="*")
    check(answer[0] == 409 and "already" in error_of(answer), "a new file replaces none")
    check(server.request("PUT", "/api/file?path=none/x.json", b"{}")[0] == 404, "a folder that is not there")
    os.mkfifo(os.path.join(folder, "pipe"))
    check(server.request("GET", "/api/file?path=pipe")[0] == 400, "a pipe is no file")
    os.unlink(os.path.join(folder, "pipe"))
    names = [file["path"] for file in server.json("GET", "/api/files")[1]["files"]]
    check("sub/x.json" in names and not any(".usm-web" in name for name in names), f"the list: {names}")


def check_apps(tool, server, folder):
    """What usm-run says reaches the page."""
    with open(os.path.join(folder, "integral.json"), encoding="utf-8") as file:
        app = file.read()
    check(server.json("POST", "/api/check?path=integral.json", app)[1]["is_ok"], "a right app")
    wrong = app.replace('"part_size": 16', '"part_size": -1').replace('integral.cl', '../../etc/passwd')
    said = server.json("POST", "/api/check?path=integral.json", wrong)[1]
    check(not said["is_ok"] and "'part_size' must be a whole number" in said["messages"]
          and "-:11:" in said["messages"], f"mistakes and their lines: {said}")
    said = server.json("POST", "/api/check?path=x.json", app.replace("integral.cl", "/etc/passwd"))[1]
    check("outside" in said["messages"], f"a file outside of the folder: {said}")
    said = server.json("POST", "/api/check?path=x.json", app.replace('["sums", "pi"]', '["sums", "pi"], ["sums", "cut"]'))[1]
    check("cut" in said["messages"] and not said["is_ok"], f"a cycle: {said}")
    for text in ("", "{", "[]", "null", "{\"nodes\": 1}", "\0", "{" * 100000):
        said = server.json("POST", "/api/check?path=x.json", text)[1]
        check(not said["is_ok"] and said["messages"], f"{text[:20]!r} is no app: {said}")
    stored = app.replace('"numbers": [0, 1], "type": "f32"', '"from": "file:key"')
    check(stored != app, "an input may be a value of a data server")
    said = server.json("POST", "/api/check?path=x.json", stored)[1]
    check("must be named on the command line" in said["messages"], f"an app's own servers: {said}")
    number = server.json("POST", "/api/run?path=integral.json", app)[1]["run"]
    for _ in range(600):
        status, _, text = server.request("GET", f"/api/result?run={number}")
        if status == 200:
            break
        time.sleep(0.05)
    check(text.startswith(b"3.14159"), f"the result: {text}")
    check(server.request("GET", "/api/result?run=99")[0] == 404, "a run that is none")
    check(server.request("POST", "/api/stop?run=x", b"")[0] == 404, "nothing to stop")
    with_store = Server(tool, folder, "--store", "file:nowhere")
    try:
        said = with_store.json("POST", "/api/check?path=x.json", stored)[1]
        check("the transport file keeps no values by name" in said["messages"], f"servers of the command line: {said}")
        with_store.json("POST", "/api/run?path=x.json", stored)
        stream, text = open_stream(with_store)
        deadline = time.monotonic() + 30
        with stream:
            while b"keeps no values" not in text and time.monotonic() < deadline and (piece := stream.recv(65536)):
                text = text[-100:] + piece
        check(b"keeps no values" in text, "and of a run")
    finally:
        with_store.end()


def open_stream(server):
    """A socket that has read the head of the stream."""
    s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    s.sendall((f"GET /api/live HTTP/1.1\r\nHost: {server.address}\r\n"
               f"Authorization: Bearer {server.token}\r\n\r\n").encode())
    return s, s.recv(4096)


def check_streams(server):
    """Pages that come and go leave nothing behind."""
    for _ in range(100):
        s, text = open_stream(server)
        if b"200 OK" not in text and b"503" not in text:
            check(False, f"a stream: {text}")
        s.close()
    deadline = time.monotonic() + 30
    text = b"503"
    while b"200 OK" not in text and time.monotonic() < deadline:
        s, text = open_stream(server)
        s.close()
        time.sleep(0.1)
    check(b"200 OK" in text, "after 100 pages that went away there is room for another")


def check_disk(tool):
    """A full disk: what was saved before is still there."""
    folder = make_folder()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder],
                                           stderr=subprocess.DEVNULL, check=False).returncode:
        print("not tried: a full disk (no tmpfs can be mounted)")
        shutil.rmtree(folder)
        return
    server = Server(tool, folder)
    try:
        check(server.request("PUT", "/api/file?path=a.json", b"{}")[0] == 200, "room for two bytes")
        answer = server.request("PUT", "/api/file?path=a.json", b"x" * 200000)
        check(answer[0] == 507 and "No space left" in error_of(answer), f"a full disk: {answer}")
        check(server.request("GET", "/api/file?path=a.json")[2] == b"{}", "what was there before")
        check(os.listdir(folder) == ["a.json"], "and nothing else")
    finally:
        server.end()
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


def check_start(tool, server, folder):
    """Ports and folders that cannot be had."""
    for args, said in (([folder, "--port", str(server.port)], "Address already in use"),
                       ([folder + "/none"], "No such file"), ([folder, "--port", "0"], "from 1 to 65535"),
                       ([folder, folder], "one folder"), ([folder, "--store", "cache1"], "NAME:SERVERS"),
                       ([folder] + 5 * ["--store", "valkey:cache1"], "more than 4 times")):
        run = subprocess.run([tool, *args], capture_output=True, text=True, timeout=20, check=False)
        check(run.returncode != 0 and said in run.stderr, f"{args[1:]}: {run.stderr}")


def main():
    tool = sys.argv[1]
    folder = make_folder("integral.json", "integral.cl")
    server = Server(tool, folder)
    try:
        check_scripts()
        check_requests(server)
        check_machine(tool, folder)
        check_files(server, folder)
        check_start(tool, server, folder)
        check_streams(server)
        if os.environ.get("USM_TEST_RUNTIME") != "host":
            check_apps(tool, server, folder)
        check_disk(tool)
    finally:
        check(server.end() == 0, "it ends well")
        shutil.rmtree(folder)
    print(f"{len(FAILED)} failed")
    sys.exit(bool(FAILED))


if __name__ == "__main__":
    main()
