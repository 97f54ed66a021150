#!/usr/bin/env python3
"""test_prometheus.py USM_TOP TOP_APP: a Prometheus server scrapes what usm-top --openmetrics writes.

The server is /usr/bin/prometheus (Debian: prometheus) or the program that USM_TEST_PROMETHEUS names.  It runs
as a plain program, without its service, with its files in TMPDIR.  Exits 77 where there is none.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

TOP, APP = sys.argv[1:3]
SERVER = os.environ.get("USM_TEST_PROMETHEUS") or shutil.which("prometheus")
FOLDER = os.environ["TMPDIR"]
WITHIN_S = 60

CONFIGURATION = """
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: usm
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


class Exporter(http.server.BaseHTTPRequestHandler):
    """Runs usm-top for each scrape."""

    def do_GET(self):
        body = subprocess.run([TOP, "--openmetrics"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              timeout=30, check=True).stdout
        self.send_response(200)
        self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def ask(base, what):
    try:
        with urllib.request.urlopen(base + what, timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def query(base, expression):
    found = ask(base, "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    return found["result"] if found else []


def wait(what, condition):
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        found = condition()
        if found:
            print("ok: " + what)
            return found
        time.sleep(0.2)
    raise AssertionError("not within %d s: %s" % (WITHIN_S, what))


def port_of(log):
    """The server takes any port, and says which."""
    with open(log, encoding="utf-8") as file:
        for line in file:
            if "Listening on" in line and "address=127.0.0.1:" in line:
                return int(line.split("address=127.0.0.1:")[1].split()[0])
    return None


def check(base, pid):
    series = 'usm_pool_live_bytes{pid="%d",kind="host"}' % pid
    target = wait("the target is up", lambda: [t for t in (ask(base, "/api/v1/targets") or {}).get("activeTargets", [])
                                               if t["health"] == "up"])
    assert not target[0]["lastError"], target
    live = wait("live bytes are stored", lambda: query(base, series))
    assert max(float(found["value"][1]) for found in live) >= 20 << 20, live
    assert live[0]["metric"]["program"] == "top_app", live
    tag = wait("a tag with a quote in its name", lambda: query(base, 'usm_tag_live_bytes{tag="?[31m\\"<script>"}'))
    assert float(tag[0]["value"][1]) == 4096, tag
    wait("a counter rises", lambda: any(float(found["value"][1]) > 0 for found in
                                        query(base, 'rate(usm_queue_commands_total{pid="%d"}[10s])' % pid)))
    meta = ask(base, "/api/v1/metadata?metric=usm_device_busy_seconds")["usm_device_busy_seconds"][0]
    assert meta["type"] == "counter" and meta["unit"] == "seconds", meta


def main():
    if not SERVER or not os.access(SERVER, os.X_OK):
        print("there is no prometheus (Debian: prometheus), nor does USM_TEST_PROMETHEUS name one")
        return 77
    exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    configuration, log = os.path.join(FOLDER, "prometheus.yml"), os.path.join(FOLDER, "prometheus.log")
    with open(configuration, "w", encoding="utf-8") as file:
        file.write(CONFIGURATION % exporter.server_address[1])
    app = subprocess.Popen([APP], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with open(log, "w", encoding="utf-8") as out:
        server = subprocess.Popen([SERVER, "--config.file=" + configuration, "--web.listen-address=127.0.0.1:0",
                                   "--storage.tsdb.path=" + os.path.join(FOLDER, "prometheus.data")],
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        port = wait("the server listens", lambda: port_of(log))
        check("http://127.0.0.1:%d" % port, app.pid)
    except (AssertionError, KeyError) as why:
        with open(log, encoding="utf-8") as file:
            print("FAILED: {}\n{}".format(why, file.read()[-3000:]))
        return 1
    finally:
        server.terminate()
        server.wait(30)
        app.stdin.close()
        app.wait(30)
        exporter.shutdown()
        shutil.rmtree(os.path.join(FOLDER, "prometheus.data"), ignore_errors=True)
        os.remove(configuration)
        os.remove(log)
    return 0


if __name__ == "__main__":
    sys.exit(main())
