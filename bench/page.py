#!/usr/bin/env python3
"""docs/benchmarks.md and its plots, from the tables in docs/benchmarks/.

page.py            fills in the figures of docs/benchmarks.md and draws docs/benchmarks/*.svg
page.py --check    says what of these is not what the tables say; changes nothing
page.py --seeds TABLES...   prints which goals the tables of two seeds or more, as files, differ in,
                   and what any of them misses

bench/page.sh measures, writes the tables and calls this.  docs/benchmarks.md itself says which rows
it shows: what stands in the first two columns of its tables, and who is compared with, is looked up
in the tables of that section; the figures, the goal and whether it was met are written behind it.
The last column, why a goal was missed, is a person's.  PLOTS below says what is drawn.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import math
import os
import re
import sys
from html import escape

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = "docs/benchmarks.md"
HEAD = ("| table | measurement | libusm | against | ratio | goal | | if missed, why |\n"
        "|---|---|---|---|---|---|---|---|\n")
OURS = ("libusm", "PROT_NONE", "libusm, areas", "libusm, traced", "after a trim", "in the way")
wrong = []


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


# --- the tables ------------------------------------------------------------------------------------

class Row:
    """One measurement: its figures as they are printed, and whom they are compared with."""

    def __init__(self, block, table, name, unit, cells):
        self.block, self.table, self.name, self.unit = block, table, name, unit
        self.figures = {}  # who -> the figure as printed
        self.best = ""     # who is compared with
        self.ratio = self.goal = self.verdict = ""
        self.__dict__.update(cells)

    def value(self, who):
        """The figure of `who` as a number; None: it was not measured."""
        try:
            return float(self.figures.get(who, ""))
        except ValueError:
            return None

    def bound(self):
        """The goal in the unit of the figures; None: there is none."""
        found = re.match(r"[<>]= (1/)?([\d.e-]+)", self.goal)
        if not found:
            return None
        goal = 1 / float(found.group(2)) if found.group(1) else float(found.group(2))
        return goal * self.value(self.best) if self.value(self.best) is not None else goal


def plain_row(block, table, cells):
    """| measurement | libusm | unit | figure who | ratio | goal | verdict |"""
    name, ours, unit, against, ratio, goal, verdict = cells
    figure, _, peer = against.partition(" ")
    return Row(block, table, name, unit,
               {"figures": {"libusm": ours, peer: figure} if peer else {"libusm": ours},
                "best": peer, "ratio": ratio, "goal": goal, "verdict": verdict})


def wide_row(block, table, unit, head, cells):
    """| workload | threads | a figure for each in the head ... | ratio | goal | verdict |"""
    row = Row(block, table, "{}, {} thread{}".format(cells[0], cells[1], "s" * (cells[1] != "1")),
              unit, {"ratio": cells[-3], "goal": cells[-2], "verdict": cells[-1]})
    row.figures = dict(zip(head[2:-3], cells[2:-3]))
    peers = [who for who in row.figures if who not in OURS and row.value(who) is not None]
    row.best = min(peers, key=row.value) if peers else ""
    return row


def rows_of(block, inner):
    rows = []
    table, unit, head = "", "", []
    for line in inner.split("\n"):
        title = re.fullmatch(r"\*\*(.*)\*\*(?: \((\w+).*\))?", line)
        if title:
            table, unit = title.group(1), (title.group(2) or "").replace("ratio", "")
        cells = [cell.strip() for cell in line[1:-1].split("|")] if line[:1] == "|" else []
        if not cells or set(line) <= set("|-"):
            continue
        if cells[0] in ("measurement", "workload"):
            head = cells
        elif head[0] == "measurement":
            rows.append(plain_row(block, table, cells))
        elif "goal" in head:  # the others are of single calls
            rows.append(wide_row(block, table, unit, head, cells))
    return rows


def tables_of(section):
    """The rows of docs/benchmarks/SECTION.md, the day of each of its blocks, and its text.  The block
    "seeds" has the figures of no table."""
    text = read("docs/benchmarks/{}.md".format(section))
    rows, days = [], {}
    for block, inner in re.findall(r"<!-- ([\w-]+): begin -->\n(.*?)<!-- \1: end -->", text, re.S):
        if block != "seeds":
            days[block] = re.search(r"Measured on (\d{4}-\d\d-\d\d)", inner).group(1)
            rows += rows_of(block, inner)
    return rows, days, text


def find(section, rows, table, name, peer=""):
    """The first that was measured.  A table is called by how its name begins; "BLOCK: TABLE" is that of
    one block of markers."""
    block, _, rest = table.rpartition(": ")
    for row in rows:
        if block not in ("", row.block) or not row.table.startswith(rest):
            continue
        if row.name == name and row.value("libusm") is not None:
            if peer in ("", row.best) or peer in row.figures:
                return row
    raise SystemExit("docs/benchmarks/{}.md has no \"{}\" in \"{}\" {}".format(
        section, name, table, "against " + peer if peer else ""))


# --- the page --------------------------------------------------------------------------------------

def page_row(section, rows, line):
    cells = [cell.strip() for cell in line[1:-1].split("|")]
    cells += [""] * (8 - len(cells))
    table, name, against, why = cells[0], cells[1], cells[3], cells[7]
    row = find(section, rows, table, name, against.partition(" ")[2])
    if "MISSED" in row.verdict and not why:
        wrong.append("{}: {}: why is it missed?".format(PAGE, name))
    if "MISSED" not in row.verdict and why:
        wrong.append("{}: {}: a reason, but it is not missed".format(PAGE, name))
    peer = "{} {}".format(row.figures[row.best], row.best) if row.best else ""
    cells = [table, name, (row.figures["libusm"] + " " + row.unit).strip(), peer, row.ratio,
             row.goal, row.verdict, why]
    return "| {} |\n".format(" | ".join(cells))


def filled(text):
    """The page with the figures of today's tables."""
    def block(match):
        section = match.group(1)
        rows, days, _ = tables_of(section)
        lines = [line for line in match.group(2).split("\n") if line.startswith("|")][2:]
        judged = [row for row in rows if "met" in row.verdict or "MISSED" in row.verdict]
        met = sum(row.verdict == "met" for row in judged)
        when = " and ".join(sorted(set(days.values())))
        return ("<!-- rows of {0}: begin -->\n{1}{2}\nMeasured on {3}. Of all rows with a goal {4} of {5} "
                "meet it. [All tables, methods, missed goals](benchmarks/{0}.md).\n"
                "<!-- rows of {0}: end -->".format(
                    section, HEAD, "".join(page_row(section, rows, line) for line in lines), when,
                    met, len(judged)))

    return re.sub(r"<!-- rows of (\w+): begin -->\n(.*?)<!-- rows of \1: end -->", block, text,
                  flags=re.S)


# --- drawing ---------------------------------------------------------------------------------------

WIDTH, LEFT, RIGHT, BAR, GAP = 860, 250, 80, 12, 14
COLOURS = ["#e8590c", "#868e96", "#4c8bd0", "#4fa36b", "#9775cf", "#c09a2b"]
STYLE = ("text{fill:#555}.title{font-size:15px;font-weight:bold}.name{font-size:12px;font-weight:bold}"
         ".panel{font-size:13px;font-weight:bold}.value{font-size:9.5px}"
         ".ours,.inner{font-size:9.5px;font-weight:bold}.inner{fill:#fff}.title,.name,.panel,.ours{fill:#222}"
         ".grid{stroke:#888;stroke-opacity:.25}.goal{stroke:#222;stroke-width:2}"
         ".zero{stroke:#888}.rule{stroke:#222;stroke-dasharray:4 3}"
         "@media(prefers-color-scheme:dark){text{fill:#aaa}.title,.name,.panel,.ours{fill:#eee}"
         ".inner{fill:#fff}.goal,.rule{stroke:#eee}}")


class Drawing:
    def __init__(self):
        self.parts, self.y = [], 0

    def text(self, x, y, what, kind="", anchor=""):
        self.parts.append('<text x="{:.1f}" y="{:.1f}"{}{}>{}</text>'.format(
            x, y, ' class="{}"'.format(kind) if kind else "",
            ' text-anchor="{}"'.format(anchor) if anchor else "", escape(what)))

    def rect(self, x, y, width, height, colour):
        self.parts.append('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>'
                          .format(x, y, width, height, colour))

    def line(self, x1, y1, x2, y2, kind):
        self.parts.append('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>'
                          .format(x1, y1, x2, y2, kind))

    def legend(self, names, colours, x=12.0):
        for name, colour in zip(names, colours):
            self.rect(x, self.y - 9, 10, 10, colour)
            self.text(x + 14, self.y, name)
            x += 34 + sum(8.3 if c.isupper() or c == "_" else 6 for c in name)
        return x

    def svg(self):
        return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1:.0f}" width="{0}" '
                'height="{1:.0f}" font-family="sans-serif" font-size="11">\n<style>{2}</style>\n{3}\n'
                "</svg>\n").format(WIDTH, self.y, STYLE, "\n".join(self.parts))


class Axis:
    """Figures to places: from `least`, logarithmic, or linear where `least` is None or negative."""

    def __init__(self, least, most):
        self.log = least is not None and least > 0
        self.least, self.most = least or 0, most

    def at(self, value):
        if self.log:
            share = math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)
        else:
            share = (value - self.least) / (self.most - self.least)
        return LEFT + min(max(share, 0), 1) * (WIDTH - LEFT - RIGHT)

    def ticks(self):
        if self.log:
            wide = self.most / self.least > 1e4
            steps = [m * 10.0 ** e for e in range(-3, 10) for m in ((1,) if wide else (1, 2, 5))]
            return [s for s in steps if self.least * 0.999 <= s <= self.most]
        power = 10.0 ** math.floor(math.log10((self.most - self.least) / 8))
        step = next(power * m for m in (1, 2, 5, 10) if (self.most - self.least) / (power * m) <= 8)
        first = math.ceil(self.least / step)
        return [step * i for i in range(first, math.floor(self.most / step) + 1)]


def draw_axis(d, axis, top, unit):
    for tick in axis.ticks():
        d.line(axis.at(tick), top, axis.at(tick), d.y, "grid")
        d.text(axis.at(tick), d.y + 14, "{:,.10g}".format(tick).replace(",", " "), "", "middle")
    d.text(WIDTH - RIGHT, d.y + 29, unit + (", logarithmic" if axis.log else ""), "", "end")
    d.y += 44


def draw_bars(d, panel, colour_of):
    """panel: title, unit, least (of a logarithmic axis), groups: [label, note, bars], a bar: [who,
    figure as printed, goal or None]."""
    top = d.y = d.y + 12
    numbers = [float(bar[1]) for group in panel["groups"] for bar in group[2]]
    axis = Axis(panel.get("least"), max(numbers))
    for label, note, bars in panel["groups"]:
        y = d.y + GAP / 2
        d.text(LEFT - 10, y + BAR - 2, label, "name", "end")
        d.text(LEFT - 10, y + 2 * BAR, note, "", "end")
        for who, figure, goal in bars:
            x = max(axis.at(float(figure)), LEFT + 1)
            d.rect(LEFT, y, x - LEFT, BAR - 2, colour_of[who])
            if goal is not None and axis.least < goal <= axis.most:
                d.line(axis.at(goal), y - 1, axis.at(goal), y + BAR - 1, "goal")
                if 0 <= axis.at(goal) - x < 40 < x - LEFT:  # the figure would stand at the goal
                    d.text(x - 4, y + BAR - 3, figure, "inner", "end")
                    y += BAR
                    continue
            d.text(x + 4, y + BAR - 3, figure, "ours" if who.startswith("libusm") else "value")
            y += BAR
        d.y += GAP + BAR * max(len(bars), 2)
    draw_axis(d, axis, top, panel["unit"])


def draw_intervals(d, panel, _):
    """panel: title, unit, rows: [label, median, low, high], rules: goals for all."""
    top = d.y = d.y + 12
    axis = Axis(min(row[2] for row in panel["rows"]) - 1, max(row[3] for row in panel["rows"]) + 1)
    bottom = top + 22 * len(panel["rows"])
    for rule in panel["rules"]:
        d.line(axis.at(rule), top, axis.at(rule), bottom, "rule")
    d.line(axis.at(0), top, axis.at(0), bottom, "zero")
    for label, median, low, high in panel["rows"]:
        d.y += 22
        d.text(LEFT - 10, d.y - 7, label, "name", "end")
        d.rect(axis.at(low), d.y - 13, axis.at(high) - axis.at(low), 4, COLOURS[1])
        d.rect(axis.at(median) - 4, d.y - 15, 8, 8, COLOURS[0])
        d.text(WIDTH - RIGHT + 40, d.y - 7, "{:+.1f}".format(median), "ours", "end")
    draw_axis(d, axis, top, panel["unit"])


def draw(title, panels, days):
    d = Drawing()
    d.y = 24
    d.text(12, d.y, title, "title")
    d.y += 18
    d.text(12, d.y, "medians of one run, " + " and ".join(sorted(set(days.values()))))
    names = []
    for panel in panels:
        for group in panel.get("groups", []):
            names += [bar[0] for bar in group[2] if bar[0] not in names]
    d.y += 20
    intervals = "rows" in panels[0]
    x = d.legend(["median", "95 % interval"] if intervals else names, COLOURS)
    if intervals or any(bar[2] is not None for p in panels for g in p["groups"] for bar in g[2]):
        d.line(x + 4, d.y - 10, x + 4, d.y + 2, "rule" if intervals else "goal")
        d.text(x + 14, d.y, "goals: median 1 %, end of the interval 2 %" if intervals else "goal")
    for panel in panels:
        if panel["title"]:
            d.y += 24
            d.text(12, d.y, panel["title"], "panel")
        (draw_intervals if intervals else draw_bars)(d, panel, dict(zip(names, COLOURS)))
    return d.svg()


# --- what is drawn ---------------------------------------------------------------------------------

def bar(row, who, called=None):
    """A bar of who's figure in row, with the goal when it is ours."""
    return [called or who, row.figures[who], row.bound() if who == "libusm" else None]


def plot_pool(get, _):
    names = ["hot pair 64 B, 1 thread", "hot pair 64 KiB, 1 thread", "hot pair 1 MiB, 1 thread",
             "glibc-thread mix, 1 thread", "larson, hand-over, 2 threads",
             "producer -> consumer, 1024, 2 threads", "log-uniform 256 B..16 MiB, 1 thread",
             "DL step, flash variable, 1 thread", "AMR step, 1 thread"]
    groups = []
    for name in names:
        row = get("Device memory", name)
        workload, threads = name.rsplit(", ", 1)
        groups.append([workload, threads, [bar(row, who) for who in row.figures
                                           if who == "libusm" or who not in OURS]])
    return ("One allocation and its release, device memory that is never touched",
            [{"title": "", "unit": "ns of thread-CPU time", "least": 2, "groups": groups}])


SPILL_LOADS = [("W1", "create and fill, in order"), ("R", "read in order"), ("X", "read at random"),
               ("W2", "overwrite in order"), ("M", "change at random"), ("S", "change in order")]


def plot_spill(get, _):
    large, small = [], []
    for load, what in SPILL_LOADS:
        blocks, buffers = (get("disk", load + ", 1 MiB " + of) for of in ("blocks", "buffers"))
        large.append([load, what, [bar(blocks, "libusm", "libusm, blocks of 1 MiB"),
                                   bar(buffers, "libusm", "libusm, buffers of 1 MiB"),
                                   bar(blocks, blocks.best, "fio, direct I/O")]])
        row = get("small", load + ", 512 MiB of 8 KiB", "1 MiB blocks")
        small.append([load, what, [bar(row, row.best, "libusm, blocks of 1 MiB"),
                                   bar(row, "libusm", "libusm, blocks of 8 KiB")]])
    return ("Buffers eight times larger than their memory, on the disk",
            [{"title": "2 GiB over 256 MiB", "unit": "MiB/s", "groups": large},
             {"title": "512 MiB over 64 MiB, in small chunks", "unit": "MiB/s", "groups": small}])


def plot_async(get, rows):
    rows = [row for row in rows if row.block == "async-level-zero"]
    pairs = {}
    for row in rows:
        if row.best and "no event" not in row.best:
            who = "SYCL" if "SYCL" in row.best else "driver"
            pairs.setdefault((row.table, row.name), {})[who] = row
    panels = {"driver": [], "submit": []}
    for (table, name), of in pairs.items():
        device, what = re.split(r"[:,] ", name, maxsplit=1)
        first = of["driver"]
        bars = [bar(first, "libusm")] + [bar(of[who], of[who].best, {
            "driver": "the driver (for memory: alloc, wait, free)", "SYCL": "SYCL's queue"}[who])
            for who in ("driver", "SYCL") if who in of]
        panels[table].append([device, what, bars])
    return ("Memory in queue order, and what a submission costs (Debian 13)",
            [{"title": "Allocated and freed on an in-order queue", "unit": "ns", "least": 10,
              "groups": panels["driver"]},
             {"title": "Until the call returns", "unit": "ns", "groups": panels["submit"]}])


def plot_ipc(get, _):
    times = []
    for table, name, label, note in [
            ("open", "open, mapped already", "open", "mapped already"),
            ("open", "close, the mapping stays", "close", "the mapping stays"),
            ("open", "open, not mapped, 1 MiB", "open", "1 MiB, not mapped"),
            ("open", "the same, the first of an owner", "open", "the first of an owner"),
            ("event", "signal to the end of the wait", "event", "signal to the end of the wait")]:
        row = get(table, name)
        times.append([label, note, [bar(row, "libusm")] + ([bar(row, row.best)] if row.best else [])])
    spun = get("event", "a word of shared memory, spun on")
    times[-1][2].append([spun.name, spun.figures["libusm"], None])
    copies = [["copy", "64 MiB {} an opened pointer".format(way),
               [bar(row, "libusm"), bar(row, row.best)]]
              for way, row in ((w, get("bandwidth", "64 MiB {} an opened pointer".format(w)))
                               for w in ("from", "to"))]
    return ("Sharing between two processes",
            [{"title": "", "unit": "microseconds", "least": 0.01, "groups": times},
             {"title": "", "unit": "MiB/s", "groups": copies}])


def plot_mpi(get, _):
    panels = []
    for place, title, unchecked, other in [
            ("network", "Over a network of two namespaces", "1 MiB blocks", "the same, beside a socket"),
            ("host", "On one host, through shared memory", "unchecked, beside MPI", "unchecked")]:
        groups = []
        for mpi in ("openmpi", "mpich"):
            for way in ("fetch", "store"):
                beside, peer, checked = (get(mpi + " " + place, "{}, {}".format(name, way))
                                         for name in (unchecked, other, "checked"))
                groups.append([{"openmpi": "Open MPI", "mpich": "MPICH"}[mpi] + ", " + way, "1 MiB blocks",
                               [bar(peer if place == "host" else beside, "libusm", "libusm, unchecked"),
                                bar(checked, "libusm", "libusm, checked"),
                                bar(beside, beside.best), bar(peer, peer.best)]])
        panels.append({"title": title, "unit": "MiB/s", "groups": groups})
    return "Memory of another rank", panels


def plot_offload(get, rows):
    _, _, text = tables_of("offload")
    found = re.findall(r"^(.*): more than by hand: .*interval ([-+.\d]+) to ([-+.\d]+) %", text, re.M)
    out = []
    for name, low, high in found:
        row = next(row for row in rows if row.name == name + ": more than by hand")
        place = {"openmpi": "Open MPI, ", "mpich": "MPICH, "}
        label = re.sub(r"^(openmpi|mpich), ", lambda m: place[m.group(1)], name)
        out.append([label if label != name else "one device, " + name,
                    row.value("libusm"), float(low), float(high)])
    return ("Split by usm_parallel(), beside the same written by hand",
            [{"title": "", "unit": "more time than by hand, %", "rows": out, "rules": [1, 2]}])


PLOTS = {"pool": plot_pool, "spill": plot_spill, "async": plot_async, "ipc": plot_ipc,
         "mpi": plot_mpi, "offload": plot_offload}


def plotted(section):
    rows, days, _ = tables_of(section)
    if section == "async":
        days = {"async-level-zero": days["async-level-zero"]}
    elif section == "pool":
        days = {"tables": days["tables"]}
    title, panels = PLOTS[section](lambda *key: find(section, rows, *key), rows)
    return draw(title, panels, days)


# --- other seeds -----------------------------------------------------------------------------------

def of_goal(row):
    """What the goal speaks of: the ratio, or the figures themselves."""
    return row.ratio or " / ".join(row.figures[who] for who in OURS if who in row.figures)


def compare_seeds(paths):
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    seeds = ["seed " + re.search(r", seed (\d+)", text).group(1) for text in texts]
    judged = [{(row.table, row.name): row for row in rows_of("", text) if row.verdict} for text in texts]
    for seed, rows in zip(seeds, judged):
        print("{}: {} of {} rows with a goal meet it.\n".format(
            seed.capitalize(), sum(row.verdict == "met" for row in rows.values()), len(rows)))
    print("| table | measurement | goal | {} |\n|---|---|---|{}".format(
        " | ".join(seeds), "---|" * len(seeds)))
    for key in dict.fromkeys(key for rows in judged for key in rows):
        found = [rows.get(key) for rows in judged]
        if all(row and row.verdict == "met" for row in found):
            continue
        goal = next(row.goal for row in found if row)
        print("| {} | {} | {} | {} |".format(*key, goal, " | ".join(
            "{}, {}".format(of_goal(row), row.verdict) if row else "-" for row in found)))


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--seeds":
        compare_seeds(sys.argv[2:])
        return 0
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 2
    made = {"docs/benchmarks/{}.svg".format(name): plotted(name) for name in PLOTS}
    made[PAGE] = filled(read(PAGE))
    for path, text in sorted(made.items()):
        there = read(path) if os.path.exists(os.path.join(ROOT, path)) else ""
        if there == text:
            continue
        if check:
            wrong.append("{}: not what docs/benchmarks/ says: bench/page.py".format(path))
        else:
            with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
                file.write(text)
            print("{}: new".format(path))
    for complaint in wrong:
        print(complaint)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
