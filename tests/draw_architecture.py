#!/usr/bin/env python3
"""The picture of docs/architecture.md, drawn from the tree.

draw_architecture.py            writes docs/architecture.svg
draw_architecture.py --check    says whether its rooms and arrows are those of the tree

A room is a folder of src, include/usm, or a folder beside src (SHOWN); src itself is src/usm.c.  What
a room is for stands behind the colon of its README.md's first line.  An arrow is an include that
occurs and that check_includes.py allows; one that follows from others is not drawn, but each room
names all that it includes.  Rooms stand in layers, above all that they include.

Long arrows pass each layer between its rooms, in a lane of their own (Sugiyama's way: layers, lanes,
an order of each layer with few crossings, then places), so none runs behind a text.  Lines of C are
rounded to hundreds, and --check does not look at them.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import os
import re
import sys
import textwrap
from html import escape

sys.dont_write_bytecode = True
import check_includes as rules  # noqa: E402  (it lies beside this file)

ROOT = rules.ROOT
SVG = "docs/architecture.svg"
SHOWN = ("include/usm",) + rules.MODULES + ("inside", "tools", "samples")
KINDS = {"include/usm": "public", "src": "inside", "tools": "program", "inside": "program", "samples": "program"}
LEGEND = (("public", "public headers"), ("inside", "the library"), ("module", "built in or modules"),
          ("program", "programs"))
wrong = []


# --- the tree --------------------------------------------------------------------------------------

def find_rooms():
    """Folders of src that have sources, what check_includes knows in them, and SHOWN."""
    folders = {"src/" + name for name in os.listdir(os.path.join(ROOT, "src"))}
    folders |= {room for room in rules.BELOW if room.startswith("src")}
    return sorted(room for room in folders.union(SHOWN) if os.path.isdir(os.path.join(ROOT, room)))


def room_of(path, rooms):
    return max((room for room in rooms if rules.inside(path, room)), key=len, default=None)


def sources(rooms):
    for top in sorted({room.split("/")[0] for room in rooms}):
        for folder, folders, names in os.walk(os.path.join(ROOT, top)):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".c", ".h", ".hpp", ".cpp", ".inc")):
                    path = os.path.relpath(os.path.join(folder, name), ROOT)
                    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                        yield path, file.read()


def purpose_of(room):
    """What stands behind the colon of its README's first line; of src, how src/usm.c begins."""
    readme = os.path.join(ROOT, room, "README.md")
    if room == "src":
        with open(os.path.join(ROOT, "src/usm.c"), encoding="utf-8") as file:
            text = " ".join(re.search(r"\*/\n/\* (.*?)\*/", file.read(), re.S).group(1).split(" * "))
        return " ".join(text.split(". ")[0].split()).lower()
    if os.path.isfile(readme):
        with open(readme, encoding="utf-8") as file:
            found = re.match(r"# [^:]+: (.+)", file.readline())
        if found:
            return found.group(1).strip()
    wrong.append("{}/README.md: its first line does not say what it is for: # {}: ...".format(room, room))
    return ""


def parts_of(room):
    """The folders of modules by name."""
    if room not in rules.MODULES:
        return ""
    where = os.path.join(ROOT, room)
    return ", ".join(sorted(n for n in os.listdir(where) if os.path.isdir(os.path.join(where, n))))


def read_tree():
    """Rooms, the lines of C of each, and the set of (includer, included)."""
    rooms = find_rooms()
    lines, arrows = dict.fromkeys(rooms, 0), set()
    for path, text in sources(rooms):
        room = room_of(path, rooms)
        if room is None:
            continue
        lines[room] += text.count("\n") if path.endswith((".c", ".h", ".inc")) else 0
        for match in rules.INCLUDE.finditer(text):
            target = rules.resolve(path, match.group(2))
            other = room_of(target, rooms) if target else None
            if other and other != room and rules.complaint(path, match.group(2)) is None:
                arrows.add((room, other))
    rooms = [room for room in rooms if lines[room]]
    return rooms, lines, {pair for pair in arrows if pair[0] in lines and pair[1] in lines}


# --- layers and lanes ------------------------------------------------------------------------------

def below(room, arrows, seen=()):
    """All that can be reached along arrows; says so and stops at a way that comes back."""
    if room in seen:
        raise SystemExit("rooms include each other: " + " -> ".join(seen[seen.index(room):] + (room,)))
    reached = set()
    for _, other in sorted(pair for pair in arrows if pair[0] == room):
        reached |= {other} | below(other, arrows, seen + (room,))
    return reached


def drawn(rooms, arrows):
    """Arrows that do not follow from others."""
    under = {room: below(room, arrows) for room in rooms}
    return {(a, b) for a, b in arrows
            if not any(b in under[other] for first, other in arrows if first == a and other != b)}


def layers_of(rooms, arrows):
    """Layer 0 includes nothing of ours; others stand above all that they include."""
    level = {}

    def place(room):
        if room not in level:
            level[room] = 1 + max((place(b) for a, b in arrows if a == room), default=-1)
        return level[room]

    for room in rooms:
        place(room)
    return level


class Lane:
    """Where a long arrow passes a layer."""

    def __init__(self, arrow, level):
        self.arrow, self.level = arrow, level


def with_lanes(rooms, arrows, level):
    """The layers, bottom first, and the chain of each arrow: includer, lanes, included."""
    layers = [[room for room in rooms if level[room] == i] for i in range(max(level.values()) + 1)]
    chains = []
    for arrow in sorted(arrows):
        lanes = [Lane(arrow, i) for i in range(level[arrow[0]] - 1, level[arrow[1]], -1)]
        for lane in lanes:
            layers[lane.level].append(lane)
        chains.append([arrow[0]] + lanes + [arrow[1]])
    return layers, chains


def crossings(layers, links):
    count = 0
    for low, high in zip(layers, layers[1:]):
        at = {id(node): i for i, node in enumerate(low)}
        ends = [at[id(other)] for node in high
                for other in sorted(links[id(node)][0], key=lambda n: at[id(n)])]
        count += sum(ends[j] < ends[i] for i in range(len(ends)) for j in range(i + 1, len(ends)))
    return count


def arrange(layers, chains):
    """Sorts each layer by where its neighbours are, back and forth; keeps the best, and betters it by
    exchanging neighbours."""
    links = {id(node): ([], []) for layer in layers for node in layer}  # below, above
    for chain in chains:
        for high, low in zip(chain, chain[1:]):
            links[id(high)][0].append(low)
            links[id(low)][1].append(high)
    best, least = [list(layer) for layer in layers], crossings(layers, links)
    for turn in range(24):
        side = turn % 2  # 0: by those below, upwards
        order = range(1, len(layers)) if side == 0 else range(len(layers) - 2, -1, -1)
        for i in order:
            fixed = layers[i - 1] if side == 0 else layers[i + 1]
            at = {id(node): (k + 0.5) / len(fixed) for k, node in enumerate(fixed)}
            own = {id(node): (k + 0.5) / len(layers[i]) for k, node in enumerate(layers[i])}
            layers[i].sort(key=lambda node: (
                sum(at[id(n)] for n in links[id(node)][side]) / len(links[id(node)][side])
                if links[id(node)][side] else own[id(node)]))
        if crossings(layers, links) < least:
            best, least = [list(layer) for layer in layers], crossings(layers, links)
    exchanged = True
    while exchanged:
        exchanged = False
        for layer in best:
            for i in range(len(layer) - 1):
                layer[i], layer[i + 1] = layer[i + 1], layer[i]
                if crossings(best, links) < least:
                    least, exchanged = crossings(best, links), True
                else:
                    layer[i], layer[i + 1] = layer[i + 1], layer[i]
    return best, links


# --- places ----------------------------------------------------------------------------------------

ROOM, LANE, SPACE, MARGIN, HEAD = 192, 16, 18, 24, 72
LINE, INSET, BETWEEN = 14, 9, 52


def width_of(node):
    return LANE if isinstance(node, Lane) else ROOM


def places(layers, links):
    """The middle of each node from the left: as near to its neighbours' as the order allows."""
    x = {}
    for layer in layers:
        left = 0
        for node in layer:
            x[id(node)] = left + width_of(node) / 2
            left += width_of(node) + SPACE
        for node in layer:
            x[id(node)] -= left / 2
    for turn in range(60):
        for layer in (layers if turn % 2 else layers[::-1]):
            want = []
            for node in layer:
                near = [x[id(n)] for side in links[id(node)] for n in side]
                want.append(sum(near) / len(near) if near else x[id(node)])
            gap = [(width_of(a) + width_of(b)) / 2 + SPACE for a, b in zip(layer, layer[1:])]
            right, left = list(want), list(want)
            for i in range(1, len(layer)):
                right[i] = max(want[i], right[i - 1] + gap[i - 1])
            for i in range(len(layer) - 2, -1, -1):
                left[i] = min(want[i], left[i + 1] - gap[i])
            for i, node in enumerate(layer):
                x[id(node)] = (right[i] + left[i]) / 2
    least = min(x[id(node)] - width_of(node) / 2 for layer in layers for node in layer)
    return {key: value - least + MARGIN for key, value in x.items()}


def short(room):
    """How a room is called in the lists of others."""
    return "usm/*.h" if room == "include/usm" else room.replace("src/", "")


def texts(room, lines, arrows):
    """(class, line) for each line in a room."""
    count = "{} lines of C".format(max(100, round(lines[room], -2)) if lines[room] else 0)
    out = [("name", "src/usm.c" if room == "src" else room)]
    out += [("small", line) for line in textwrap.wrap(purpose_of(room), 29)]
    out += [("code", line) for line in textwrap.wrap(parts_of(room), 26)]
    out.append(("count", count))
    sees = ", ".join(short(b) for a, b in sorted(arrows) if a == room)
    if sees:
        out += [("sees", line) for line in textwrap.wrap("includes " + sees, 32, break_on_hyphens=False)]
    return out


def kind_of(room):
    return KINDS.get(room) or KINDS.get(room.split("/")[0]) or "module"


STYLE = """.ground{fill:#fff}.public{fill:#e9f5ec;stroke:#2e7d43}.inside{fill:#eaf2fc;stroke:#2f6db5}
.module{fill:#fdf3e3;stroke:#b5762f}.program{fill:#f6f8fa;stroke:#57606a;stroke-dasharray:5 4}
.title{font-size:17px;font-weight:bold;fill:#1f2328}.name{font-size:13px;font-weight:bold;fill:#1f2328}
.small{fill:#1f2328}.code{font-family:monospace;fill:#1f2328}.count{fill:#57606a}
.sees{font-size:10px;font-style:italic;fill:#57606a}
.arrow{fill:none;stroke:#57606a;stroke-width:1.3;marker-end:url(#tip)}"""


def ends(node, x, links, side):
    """Where arrows leave the lower (side 0) or reach the upper edge of a room: other -> place."""
    others = sorted(links[id(node)][side], key=lambda n: x[id(n)])
    if isinstance(node, Lane):
        return {id(n): x[id(node)] for n in others}
    step = min(22, (width_of(node) - 30) / max(1, len(others) - 1))
    return {id(n): x[id(node)] + step * (i - (len(others) - 1) / 2) for i, n in enumerate(others)}


def draw(rooms, lines, arrows):
    shown = drawn(rooms, arrows)
    layers, chains = with_lanes(rooms, shown, layers_of(rooms, arrows))
    layers, links = arrange(layers, chains)
    x = places(layers, links)
    text = {room: texts(room, lines, arrows) for room in rooms}
    top, y = {}, HEAD
    height = {i: 2 * INSET + LINE * max(len(text[n]) for n in layer if not isinstance(n, Lane))
              for i, layer in enumerate(layers)}
    for i in range(len(layers) - 1, -1, -1):
        top[i] = y
        y += height[i] + BETWEEN
    width = max(x[id(n)] + width_of(n) / 2 for layer in layers for n in layer) + MARGIN
    out = []
    where = {id(node): i for i, layer in enumerate(layers) for node in layer}
    below_of = {id(n): ends(n, x, links, 0) for layer in layers for n in layer}
    above_of = {id(n): ends(n, x, links, 1) for layer in layers for n in layer}
    for chain in chains:
        path = ""
        for high, low in zip(chain, chain[1:]):
            x1, y1 = below_of[id(high)][id(low)], top[where[id(high)]] + height[where[id(high)]]
            x2, y2 = above_of[id(low)][id(high)], top[where[id(low)]]
            path += "{}{:.0f} {:.0f}".format("L" if path else "M", x1, y1)
            bend = (y2 - y1) / 2
            path += "C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}".format(
                x1, y1 + bend, x2, y2 - bend, x2, y2)
        out.append('<path class="arrow" d="{}"><title>{} includes {}</title></path>'.format(
            path, *chain[0::len(chain) - 1]))
    for i, layer in enumerate(layers):
        for room in (node for node in layer if not isinstance(node, Lane)):
            left = x[id(room)] - ROOM / 2
            out.append('<rect class="{}" x="{:.0f}" y="{}" width="{}" height="{}" rx="5"/>'.format(
                kind_of(room), left, top[i], ROOM, height[i]))
            for k, (kind, line) in enumerate(text[room]):
                out.append('<text class="{}" x="{:.0f}" y="{}">{}</text>'.format(
                    kind, left + INSET, top[i] + INSET + LINE * k + 11, escape(line)))
    return frame(width, y - BETWEEN + MARGIN, out)


def frame(width, height, parts):
    head = ['<text class="title" x="{}" y="28">The parts of libusm</text>'.format(MARGIN),
            '<text class="small" x="{}" y="50">An arrow: the upper includes the lower. Arrows that follow '
            'from others are left out; each room names all.</text>'.format(MARGIN)]
    at = width - MARGIN - 470
    for kind, what in LEGEND:
        head.append('<rect class="{}" x="{:.0f}" y="18" width="12" height="12"/>'
                    '<text class="small" x="{:.0f}" y="28">{}</text>'.format(kind, at, at + 18, what))
        at += 36 + 6.3 * len(what)
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" '
            'height="{1:.0f}" role="img" aria-labelledby="about" font-family="Helvetica, Arial, sans-serif" '
            'font-size="11">\n<!-- SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception; made by '
            'tests/draw_architecture.py -->\n<title id="about">The parts of libusm, and who includes whom'
            '</title>\n<style>{2}</style>\n<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" '
            'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#57606a"/>'
            '</marker></defs>\n<rect class="ground" width="{0:.0f}" height="{1:.0f}"/>\n{3}\n</svg>\n').format(
                width, height, STYLE, "\n".join(head + parts))


def structure(svg):
    """What is written in the picture, who includes whom too, without line counts and places."""
    return sorted(text for text in re.findall(r"<(?:text|title)[^>]*>([^<]*)<", svg)
                  if not text.endswith(" lines of C"))


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    made, path = draw(*read_tree()), os.path.join(ROOT, SVG)
    if sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            if structure(file.read()) != structure(made):
                wrong.append(SVG + ": not the rooms and arrows of the tree: tests/draw_architecture.py")
    elif not wrong:
        with open(path, "w", encoding="utf-8") as file:
            file.write(made)
    for complaint in wrong:
        print(complaint)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
