#!/usr/bin/env python3
"""test_usm_prof_export.py USM_PROF: what `usm-prof report --perfetto --html` and `usm-prof export
--pytorch-snapshot` write of traces whose contents make_trace.py knows.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import collections
import json
import os
import pickle
import pickletools
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
failures = []
checked = 0


def check(condition, complaint):
    global checked
    checked += 1
    if not condition:
        failures.append(complaint)


def export(prof, folder, kind, left=None):
    """The two files of a trace; with `left`, of so many bytes of the one made last time."""
    trace, page, perfetto = (os.path.join(folder, kind + end) for end in (".trace", ".html", ".json"))
    if not left:
        subprocess.run([sys.executable, os.path.join(HERE, "make_trace.py"), kind, trace], check=True)
    else:
        os.truncate(trace, left)
    result = subprocess.run([prof, "report", trace, "--html", page, "--perfetto", perfetto],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    check(result.returncode == 0, "{}: usm-prof says {}".format(kind, result.stdout))
    with open(page, encoding="utf-8") as file:
        text = file.read()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    with open(perfetto, encoding="utf-8") as file:
        return json.loads(data.group(1)), json.load(file), text, os.path.getsize(page), \
            os.path.getsize(perfetto)


def check_events(trace):
    events = trace["traceEvents"]
    by = collections.defaultdict(list)
    for e in events:
        by[e["ph"]].append(e)
    check(len(by["b"]) == 4 and len(by["e"]) == 4, "perfetto: 4 blocks, not {}".format(len(by["b"])))
    first = by["b"][0]
    check(first["name"] == "</script><b>" and first["args"]["size"] == MIB and first["ts"] == 2.0,
          "perfetto: the first block is {}".format(first))
    check(by["b"][1]["name"] == "caf\ufffd" and by["b"][1]["args"]["usable"] == 2 * MIB + 1024,
          "perfetto: the second block is {}".format(by["b"][1]))
    ends = {e["id"]: e["ts"] for e in by["e"]}
    check(ends[first["id"]] == 6.0, "perfetto: the first block ends at {}".format(ends[first["id"]]))
    calls = [e for e in by["X"] if e["cat"] == "driver"]
    check(sorted((e["name"], e["ts"], e["dur"]) for e in calls) ==
          [("give to driver", 4.6, 0.4), ("take from driver", 0.1, 0.9), ("take from driver", 3.5, 0.5)],
          "perfetto: the driver calls are {}".format(calls))
    slab = [e["args"] for e in by["C"] if e["name"].startswith("pool 1: slab device, gpu \"0\"")]
    check(max(a["live"] for a in slab) == 3 * MIB and slab[-1] ==
          {"live": 2 * MIB, "reserved": 8 * MIB, "cached": 6 * MIB}, "perfetto: levels {}".format(slab))
    check(len(by["s"]) == 1 and len(by["f"]) == 1 and by["s"][0]["ts"] == 6.0 and by["f"][0]["ts"] == 7.0,
          "perfetto: arrows {} {}".format(by["s"], by["f"]))
    names = [e["name"] for e in by["i"]]
    check("out of memory" in names and any("5 events were lost" in n for n in names),
          "perfetto: marks {}".format(names))
    threads = [e["args"]["name"] for e in by["M"] if e["name"] == "thread_name"]
    check(sorted(threads) == ["thread 1", "thread 2"], "perfetto: threads {}".format(threads))


def check_page(data, text):
    blocks = data["blocks"]
    check(data["command"] == "app </script> --n 1", "html: the command is " + data["command"])
    check(text.count("</script") == 3, "html: something in the data ends a script")
    check("http://" not in text and "https://" not in text, "html: it names another place")
    check(blocks["size"] == [MIB, 2 * MIB, 4096, MIB // 2], "html: sizes {}".format(blocks["size"]))
    check(blocks["slack"] == [0, 1024, 0, 0], "html: slack {}".format(blocks["slack"]))
    check(blocks["life"][1] == -1 and blocks["life"].count(-1) == 1,
          "html: lives {}".format(blocks["life"]))
    check(int(data["base"], 16) + blocks["at"][0] == 0x7f0000000000, "html: addresses")
    check(len(data["areas"]) == 2 and data["areas"][1][3] > 0, "html: areas {}".format(data["areas"]))
    check(data["tags"][1:] == ["</script><b>", "caf\ufffd"], "html: tags {}".format(data["tags"]))
    check(data["caches"] == [[1, MIB, 1], [10, MIB // 4, 1]], "html: caches {}".format(data["caches"]))
    pools = next(t for t in data["tables"] if t["title"] == "Pools")["rows"]
    check([p[-1] for p in pools] == [MIB, 0], "html: caches of pools {}".format(pools))
    check(data["failed"] == [[9, 1 << 33, 1, 1]], "html: failures {}".format(data["failed"]))
    check(any("5 events were lost" in n for n in data["notices"]), "html: {}".format(data["notices"]))
    check(any(t["title"] == "Reuse by size" and len(t["rows"]) == 5 for t in data["tables"]),
          "html: the table of sizes")
    facts = {name: value for name, value, _ in data["summary"]}
    check(facts["Allocations"] == "4", "html: summary {}".format(facts))


def check_many(data, trace, sizes):
    slices = sum(e["ph"] == "b" for e in trace["traceEvents"])
    counters = sum(e["ph"] == "C" for e in trace["traceEvents"])
    marks = [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"]
    check(slices == 50000 and counters <= 41000, "many: {} slices {} levels".format(slices, counters))
    check(any(m.startswith("of 300000 blocks the 50000") for m in marks), "many: {}".format(marks))
    check(len(data["blocks"]["size"]) == 200000 and data["rest"]["count"] == 100000,
          "many: {} blocks drawn".format(len(data["blocks"]["size"])))
    check(len(data["times"]) <= 400000 and data["step"] == 2, "many: step {}".format(data["step"]))
    check(max(data["rest"]["levels"][1][1]) > 0, "many: the rest has no level")
    check(max(sizes) < 40 * MIB, "many: files of {} bytes".format(sizes))


def check_work(data, trace):
    gpu, cpu = data["work"]["devices"]
    check(gpu["name"] == "opencl:0" and cpu["name"] == "</script>", "page: the devices are named")
    check(collections.Counter(s[0] for s in gpu["spans"]) == {1: 10, 3: 10, 4: 10, 5: 10},
          "page: ten chunks, each with its parts")
    check([1, 230000, 210000, 64, 1, 128] in gpu["spans"], "page: the third chunk")
    check(sum(s[0] == 2 for s in cpu["spans"]) == 1, "page: a chunk that failed")
    check(cpu["gaps"][-1] == [700000, 500000], "page: the second device has nothing to do, {}".format(cpu["gaps"]))
    rows = next(t for t in data["tables"] if t["title"] == "Devices in split launches")["rows"]
    check(rows[0][0] == "opencl:0" and rows[0][1] == 10 and rows[1][2] == 1, "page: the table is {}".format(rows))
    names = collections.Counter(e["name"] for e in trace["traceEvents"] if e["ph"] == "b")
    check(names["opencl:0 kernel"] == 10 and names["opencl:0 copy in"] == 10 and names["</script> idle"] == 2,
          "perfetto: slices of each device, not {}".format(names))


# What the viewer's own reader knows (unpickle() of MemoryViz.js).
VIEWER = {"PROTO", "STOP", "MARK", "EMPTY_DICT", "SETITEMS", "EMPTY_LIST", "APPENDS", "BINGET", "LONG_BINGET",
          "BINPUT", "LONG_BINPUT", "BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "NEWTRUE", "NEWFALSE"}


def undo(snapshot, device):
    """What the viewer does to show an earlier moment: takes the events back from the last one on."""
    held, live = [], {}
    for s in snapshot["segments"]:
        if s["device"] == device:
            held.append([s["address"], s["address"] + s["total_size"]])
            live.update((b["address"], b["requested_size"]) for b in s["blocks"] if b["state"] != "inactive")
    for e in reversed(snapshot["device_traces"][device]):
        first, last = e.get("addr"), e.get("addr", 0) + e["size"]
        if e["action"] == "alloc":
            check(live.pop(first, None) == e["size"], "pytorch: no block at {}".format(first))
        elif e["action"] == "free_completed":
            live[first] = e["size"]
        elif e["action"] in ("segment_free", "segment_unmap"):
            held.append([first, last])
        elif e["action"] in ("segment_alloc", "segment_map"):
            one = next((h for h in held if h[0] <= first and last <= h[1]), None)
            check(one is not None, "pytorch: no segment at {}".format(first))
            held = [h for h in held if h is not one]
            held += [h for h in ([one[0], first], [last, one[1]]) if h[0] < h[1]] if one else []
    return held, live


def snapshot(prof, folder, kind, left=None):
    """The pickle of a trace, or of its first `left` bytes, held against the report's own figures."""
    trace, path = (os.path.join(folder, kind + end) for end in (".trace", ".pickle"))
    subprocess.run([sys.executable, os.path.join(HERE, "make_trace.py"), kind, trace], check=True)
    if left:
        os.truncate(trace, left)
    subprocess.run([prof, "export", trace, "--pytorch-snapshot", path], check=True, stderr=subprocess.DEVNULL)
    report = json.loads(subprocess.run([prof, "report", trace, "--json"], check=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL).stdout)
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < MIB:
        known = {op.name for op, _, _ in pickletools.genops(data)}
        check(known <= VIEWER, "pytorch: {} writes {}".format(kind, known - VIEWER))
    found = pickle.loads(data)
    events = [e for d in found["device_traces"] for e in d]
    blocks = [b for s in found["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    check({"segments", "device_traces", "allocator_settings"} <= set(found), "pytorch: keys of " + kind)
    check(all({"action", "size", "stream", "time_us", "frames"} <= set(e) for e in events), "pytorch: events")
    check(all({"name", "filename", "line"} == set(f) for e in events for f in e["frames"]), "pytorch: frames")
    allocs = [e["size"] for e in events if e["action"] == "alloc"]
    actions = collections.Counter(e["action"] for e in events)
    check((len(allocs), sum(allocs)) == (report["all"]["allocations"], report["all"]["bytes"]),
          "pytorch: {} allocations in {}".format(len(allocs), kind))
    check(actions["oom"] == report["all"]["failed"], "pytorch: failures of " + kind)
    check(actions["segment_alloc"] + actions["segment_map"] == report["driver"]["takes"], "pytorch: areas of " + kind)
    check(sum(s["total_size"] for s in found["segments"]) == sum(p["reserved_at_end"] for p in report["pools"]),
          "pytorch: the segments of {} are {}".format(kind, found["segments"]))
    check(sum(b["size"] for b in blocks) == report["all"]["live_at_end"] and
          len(blocks) == report["all"]["blocks_at_end"], "pytorch: blocks of {} at the end".format(kind))
    for s in found["segments"]:
        check(sum(b["size"] for b in s["blocks"]) == s["total_size"], "pytorch: a gap in {}".format(s["address"]))
        check(sum(b["size"] for b in s["blocks"] if b["state"] != "inactive") == s["active_size"], "pytorch: active")
    for device in range(len(found["device_traces"])):
        check(undo(found, device) == ([], {}), "pytorch: {} begins with {}".format(kind, undo(found, device)))
    return found


def check_snapshots(prof, folder):
    small = snapshot(prof, folder, "small")
    check(small["usm_devices"] == ['device memory of gpu "0"', "host memory"], "pytorch: {}".format(small["usm_devices"]))
    frames = [f["name"] for f in small["device_traces"][0][2]["frames"]]
    check(frames == ["0x401000", "0x402000", "caf\ufffd", "pool 1 slab"], "pytorch: frames {}".format(frames))
    mapped = snapshot(prof, folder, "mapped")
    sizes = [(s["is_expandable"], [b["size"] for b in s["blocks"]]) for s in mapped["segments"]]
    check(sizes == [(True, [MIB, 2 * MIB, MIB])], "pytorch: pieces are one segment, not {}".format(sizes))
    snapshot(prof, folder, "unended")
    snapshot(prof, folder, "empty")
    many = snapshot(prof, folder, "many", left=MIB)
    check(len(many["segments"]) == 1 and len(many["device_traces"][0]) > 40000, "pytorch: many events")


def main():
    prof = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        data, trace, text, *_ = export(prof, folder, "small")
        check_events(trace)
        check_page(data, text)
        data, trace, text, *sizes = export(prof, folder, "many")
        check_many(data, trace, sizes)
        data, trace, *_ = export(prof, folder, "many", left=MIB + 100)
        check(any("damaged" in n for n in data["notices"]), "cut: {}".format(data["notices"]))
        check(any("damaged" in e["name"] for e in trace["traceEvents"]), "cut: perfetto says nothing")
        data, *_ = export(prof, folder, "unended")
        check(len(data["notices"]) == 3 and "did not end in order" in data["notices"][1]
              and data["notices"][2].startswith("1 block was freed"), "unended: {}".format(data["notices"]))
        data, trace, *_ = export(prof, folder, "work")
        check_work(data, trace)
        data, trace, *_ = export(prof, folder, "empty")
        check(data["blocks"]["size"] == [] and data["times"] == [], "empty: there is something")
        check_snapshots(prof, folder)
        result = subprocess.run([prof, "report", os.path.join(folder, "small.trace"), "--html",
                                 os.path.join(folder, "none", "x.html")],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        check(result.returncode != 0 and b"none" in result.stderr, "a folder that is not there passes")
    for complaint in failures:
        print(complaint)
    print("{} checked, {} wrong".format(checked, len(failures)))
    return 1 if failures or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
