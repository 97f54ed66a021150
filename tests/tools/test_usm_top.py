#!/usr/bin/env python3
"""test_usm_top.py USM_TOP TOP_APP [screen]: usm-top as users and programs meet it: its forms for programs, its
screen (through a pseudo-terminal that pyte draws), processes that end while they are watched.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

TOP, APP = sys.argv[1:3]
passed = failed = 0


def check(condition, what, shown=""):
    global passed, failed
    if condition:
        passed += 1
        return
    failed += 1
    print("FAILED: {}\n{}".format(what, shown))


def run(*arguments, status=0, text=""):
    done = subprocess.run([TOP, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    check(done.returncode == status and text in done.stdout + done.stderr,
          "usm-top {} exits with {} and says {!r}".format(" ".join(arguments), status, text),
          "{}: {}{}".format(done.returncode, done.stdout, done.stderr))
    return done.stdout


class App:
    """A watched program, which ends with its input."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([APP, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"
        self.pid = self.process.pid

    def kill_unwaited(self):
        """It stays a zombie until kill()."""
        self.process.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def end(self):
        self.process.stdin.close()
        check(self.process.wait(60) == 0, "the watched program ends well")

    def kill(self):
        self.process.kill()
        self.process.wait()


def page_of(pid):
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "usm")
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("%d-" % pid)]


# --- for programs ------------------------------------------------------------------------------------

def check_json(app, still):
    document = json.loads(run("--json"))
    found = {process["pid"]: process for process in document["processes"]}
    check(document["schema"] == 1 and set(found) == {app.pid, still.pid}, "both processes", document)
    one = found[app.pid]
    check(one["sampled"] and one["live"] >= 21 << 20, "the busy one is sampled", one)
    tags = {tag["name"]: tag for tag in one["tags"]}
    check(set(tags) == {'?[31m"<script>', "leak"}, "names without control characters", tags)
    check(tags["leak"]["blocks"] >= 2 and tags["leak"]["live"] == 5000 * tags["leak"]["blocks"], "tags", tags)
    kinds = {pool["kind"] for pool in one["pools"]}
    check({"host", "shared"} <= kinds, "pools of two kinds", one["pools"])
    check(any(queue["submitted"] > 0 for queue in one["queues"]), "queues", one["queues"])
    two = found[still.pid]
    check(not two["sampled"] and two["reserved"] >= two["live"] >= 19 << 20, "the still one has no secrets", two)


def check_depth():
    """Commands in flight, and how busy they keep a device: of a program that waits for nothing."""
    deep = App("deep")
    document = json.loads(run("--json", "--pid", str(deep.pid)))
    one = document["processes"][0]
    check([queue["depth"] for queue in one["queues"]][-1:] == [7], "seven in flight", one["queues"])
    check([queue["depth_peak"] for queue in one["queues"]][-1:] == [7], "the most", one["queues"])
    busy = [device for device in one["devices"] if device["depth"] == 7]
    check(len(busy) == 1 and busy[0]["use"] == 1 and busy[0]["busy_ns"] > 0, "a busy device", one["devices"])
    text = run("--once", "--pid", str(deep.pid))
    check("] 7 in flight, most 7, 7 submitted" in text and "use 100%, 7 in flight of" in text, "as text", text)
    text = run("--openmetrics", "--pid", str(deep.pid))
    check(re.search(r"^usm_queue_depth\{.*\} 7$", text, re.M), "queues for Prometheus", text)
    seconds = re.search(r'^usm_device_busy_seconds_total\{.*device="host:.*\} ([0-9.]+)$', text, re.M)
    check(seconds and float(seconds.group(1)) > 0, "busy seconds for Prometheus", text)
    deep.end()


def check_zombie():
    app = App()
    page = page_of(app.pid)
    app.kill_unwaited()
    run("--once", "--pid", str(app.pid), status=1, text="no process of this user")
    check(page and not os.path.exists(page[0]), "the page of a zombie is removed", page)
    app.kill()


SAMPLE = re.compile(r'^([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} ([0-9]+(?:\.[0-9]{9})?)$')


def check_openmetrics(app):
    """A reader of OpenMetrics 1.0: families in one piece, units, suffixes, no series twice."""
    lines = run("--openmetrics").splitlines()
    family, kind, seen, series, values = "", "", set(), set(), {}
    check(lines[-1] == "# EOF" and lines.count("# EOF") == 1, "it ends with EOF", lines[-1])
    for line in lines[:-1]:
        word = line.split(" ")
        if line.startswith("# TYPE "):
            check(word[2] not in seen and word[3] in ("gauge", "counter"), "a family once", line)
            family, kind = word[2:4]
            seen.add(family)
        elif line.startswith("# UNIT "):
            check(word[2] == family and family.endswith("_" + word[3]), "the unit ends the name", line)
        elif line.startswith("# HELP "):
            check(word[2] == family and len(word) > 3, "the help is the family's", line)
        else:
            found = SAMPLE.match(line)
            check(found is not None, "a sample", line)
            if not found:
                continue
            check(found.group(1) == family + ("_total" if kind == "counter" else ""), "its family's", line)
            check(found.group(1, 2) not in series, "a series once", line)
            series.add(found.group(1, 2))
            if 'pid="%d"' % app.pid in line:
                values.setdefault(family, []).append(float(found.group(3)))
    check(sum(values["usm_pool_live_bytes"]) >= 21 << 20, "its values", values)
    check(values["usm_tag_blocks"][0] == 1, "its tags", values)
    check_with_prometheus("\n".join(lines) + "\n")


def check_with_prometheus(text):
    """The parser of Prometheus' own client, where it is installed (Debian: python3-prometheus-client)."""
    try:
        from prometheus_client.openmetrics import parser
    except ImportError:
        return
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    check(families["usm_pool_live_bytes"].unit == "bytes", "Prometheus reads it", families)


def check_text(app, still):
    text = run("--once")
    check("\033" not in text and "?[31m" in text, "no control characters", text)
    check(all(str(process.pid) in text for process in (app, still)), "both are listed", text)
    check("20M+" in text, "the still one says why", text)
    check(str(still.pid) not in run("--once", "--pid", str(app.pid)), "one alone")
    run("--once", "--filter", "absent", text="no process of this user")
    run("--once", "--pid", "1", status=1)


def check_log(app):
    path = os.path.join(os.environ["TMPDIR"], "top.log")
    run("--log", path, "--samples", "3", "--delay", "200")
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    check(len(lines) == 3 and all(line["processes"] for line in lines), "a line for each sample", lines)
    last = {process["pid"]: process for process in lines[-1]["processes"]}[app.pid]
    check([tag["rises"] for tag in last["tags"] if tag["name"] == "leak"] >= [2], "the tag grows", last)
    os.remove(path)
    run("--log", "/nowhere/file", status=1, text="/nowhere/file: No such file")
    run("--log", "/dev/full", "--samples", "2", "--delay", "100", status=1, text="/dev/full: No space left")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([TOP, "--json"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    check(done.returncode == 1 and "standard output: No space left" in done.stderr, "a full disk", done)


def check_misuse():
    run("--help", text="usm-top [OPTION]")
    run("--version", text="usm-top")
    run("--sort", "size", status=2, text="--sort wants live")
    run("--delay", "5", status=2, text="--delay wants milliseconds")
    run("--json", "--openmetrics", status=2, text="which one?")
    run("--grows", "0", status=2, text="--grows wants a number")
    run("extra", status=2, text="too much")


def check_absurd(page, mine):
    """A page of a process that lives, with the largest number in each figure: offsets as in page.h."""
    with open(page, "rb") as file:
        forged = bytearray(file.read())
    with open("/proc/self/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(") ", 1)[1].split(" ")
    for at in range(192, len(forged)):
        forged[at] = 0xff
    struct.pack_into("<I", forged, 16, os.getpid())
    struct.pack_into("<QQ", forged, 24, int(fields[22 - 3]), int(fields[28 - 3]))
    with open(mine, "wb") as file:
        file.write(forged)
    os.chmod(mine, 0o600)
    found = [p for p in json.loads(run("--json"))["processes"] if p["pid"] == os.getpid()]
    check(len(found) == 1 and len(found[0]["pools"]) == 96 and len(found[0]["tags"]) == 64, "it is shown", found)
    check("nan" not in run("--once") and str(os.getpid()) in run("--openmetrics"), "in each form")
    with open(mine, "r+b") as file:
        file.truncate(len(forged) - 1)
    run("--once", text="the page was cut off after %d of %d bytes" % (len(forged) - 1, len(forged)))
    os.remove(mine)


def check_forged(app):
    """What somebody leaves in the folder ends nobody."""
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "usm")
    namespace = os.stat("/proc/self/ns/pid").st_ino
    mine = os.path.join(folder, "%d-%d.page" % (os.getpid(), namespace))
    with open(mine, "wb") as file:
        file.write(b"USMPAGE\0\x09\0\0\0" + b"x" * 100)
    os.chmod(mine, 0o600)
    check("version 9, and this program reads" in run("--once", text=str(os.getpid())), "another version")
    os.remove(mine)
    check_absurd(page_of(app.pid)[0], mine)
    for name in ("1-2.page", "x.page", "%d.page" % os.getpid(), "99999999999999999999-%d.page" % namespace):
        os.mkdir(os.path.join(folder, name))
    run("--once", text=str(os.getppid())[:0])
    for name in os.listdir(folder):
        if os.path.isdir(os.path.join(folder, name)):
            os.rmdir(os.path.join(folder, name))


# --- its screen ------------------------------------------------------------------------------------------

class Terminal:
    def __init__(self, columns, lines, *arguments, term="xterm-256color"):
        import pyte
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM=term, LC_ALL="C.UTF-8", LINES=str(lines), COLUMNS=str(columns))
            os.execv(TOP, [TOP, "--delay", "200", *arguments])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # it has ended
            return False
        self.stream.feed(data)
        return bool(data)

    def text(self):
        return "\n".join(self.screen.display)

    def shows(self, text, what):
        end = time.monotonic() + 10
        while text not in self.text() and time.monotonic() < end:
            self.read(0.1)
        check(text in self.text(), what + ": " + text, self.text())

    def shows_not(self, text, what):
        end = time.monotonic() + 10
        while text in self.text() and time.monotonic() < end:
            self.read(0.1)
        check(text not in self.text(), what + ": not " + text, self.text())

    def press(self, keys):
        os.write(self.fd, keys)

    def end(self, keys=b"q"):
        if keys:
            self.press(keys)
        while self.read(5):
            pass
        pid, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        check(pid == self.pid and status == 0, "it ends", status)


def check_screen(app, still):
    t = Terminal(120, 40)
    t.shows("PROGRAM", "a head")
    t.shows("top_app", "the processes")
    t.shows("pools:", "details")
    t.press(b"\x1bOP")  # F1
    t.shows("keys of usm-top", "help")
    t.press(b"x")
    t.shows_not("keys of usm-top", "help goes")
    t.press(b"s")
    t.shows("by reserved", "the next order")
    t.press(b"I")
    t.shows("reversed", "the other way round")
    t.press(b"\\")
    t.shows("filter: _", "a prompt")
    t.press(b"absent\n")
    t.shows("no program whose name has", "a filter that fits none")
    t.press(b"\\" + b"\x7f" * 6 + b"\n")
    t.shows("top_app", "no filter any more")
    t.press(b"I")
    t.shows_not("reversed", "as before")
    check(" ended" not in t.text(), "a filter ends nobody", t.text())
    t.press(b"\x1bOF")  # End
    t.shows("process %d" % still.pid, "the last is chosen")
    t.press(b"\x1bOH")
    t.shows("process %d" % app.pid, "the first is chosen")
    t.end(b"\x1b[21~")  # F10


def check_death():
    first = App()
    t = Terminal(120, 40, "--pid", str(first.pid))
    t.shows("process %d" % first.pid, "it is watched")
    t.shows("grows: +", "what grows")
    page = page_of(first.pid)
    check(len(page) == 1, "it has a page", page)
    first.kill()
    t.shows("no process of this user", "it has ended")
    t.shows("1 ended", "that is counted")
    check(not os.path.exists(page[0]), "its page is removed", page)
    t.end()


def check_small(app):
    for columns, lines in ((40, 12), (20, 5), (8, 2)):
        t = Terminal(columns, lines)
        t.shows("usm-top", "a small terminal")
        if columns == 40:
            t.shows(str(app.pid), "the process")
            t.shows("pools:", "details")
            check(all(len(line) <= columns for line in t.screen.display), "no line is too long", t.text())
        t.end()
    t = Terminal(80, 24, term="vt100")  # no colours
    t.shows("PROGRAM", "no colours")
    t.end()
    t = Terminal(80, 24, "--no-color")
    t.shows("PROGRAM", "colours that nobody wants")
    t.end()


def check_resize():
    t = Terminal(120, 40)
    t.shows("ALLOC/s", "wide")
    t.screen.resize(24, 60)
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    os.kill(t.pid, signal.SIGWINCH)
    t.shows_not("ALLOC/s", "narrow")
    t.end()


def in_terminal(command):
    # ncurses frees not all that it had of a terminal that it does not know
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    return subprocess.run(["script", "-qec", command, "/dev/null"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, ASAN_OPTIONS=options))


def check_unknown_terminal():
    for name in ("nonsense", "dumb"):
        done = in_terminal("TERM=%s %s" % (name, TOP))
        check('nothing can be drawn on the terminal "%s"; try --once' % name in done.stdout and
              done.returncode == 1 and "PROGRAM" not in done.stdout,
              "a terminal that cannot be drawn on has a sentence", done)
    check("\033" not in in_terminal("TERM=dumb %s --once" % TOP).stdout, "--once needs no terminal")


def check_full_disk_on_screen():
    done = in_terminal("TERM=xterm %s --log /dev/full" % TOP)
    last = done.stdout.rsplit("\033", 1)[-1]
    check(done.returncode == 1 and "usm-top: /dev/full: No space left" in last,
          "a full disk is told when the screen has gone", done)


def can_draw():
    if sys.argv[3:] != ["screen"]:
        return False
    try:
        import pyte  # noqa: F401
    except ImportError:
        print("the screen is not tested: no pyte (Debian: python3-pyte)")
        return False
    return True


def main():
    app, still = App(), App("still")  # before any reader: the one that is still never hears of one
    check_misuse()
    check_json(app, still)
    check_openmetrics(app)
    check_text(app, still)
    check_log(app)
    check_forged(app)
    check_depth()
    check_zombie()
    if can_draw():
        check_screen(app, still)
        check_small(app)
        check_resize()
        check_unknown_terminal()
        check_full_disk_on_screen()
    app.end()
    still.end()
    check(not page_of(app.pid), "a page goes with its process")
    run("--once", text="no process of this user")
    if can_draw():
        check_death()
    print("{} checks passed, {} failed".format(passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
