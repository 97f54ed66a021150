#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes airports_us.csv and states_us.csv anew from the two Python packages they come from.

    python3 -m venv venv
    venv/bin/pip install airportsdata==20260905 plotly-geo==1.0.0
    venv/bin/python extract.py

Only people run this; building and running the sample needs neither Python nor a network.
README.md beside this file tells the sources and their licences.
"""
import csv
import importlib.metadata
import importlib.util
import math
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
METRES_PER_FOOT = 0.3048
NOT_CONTIGUOUS = {"Alaska", "Hawaii", "Puerto Rico", "Virgin Islands"}
NOT_CONTIGUOUS_FIPS = {"02", "15", "60", "66", "69", "72", "78"}
TOLERANCE_DEG = 0.012  # what the borders may move by: half a pixel of the map
SMALLEST_DEG2 = 0.0008  # islands under some 8 square kilometres are left out


def package_file(package, *parts):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent.joinpath(*parts)


# ---- the points ---------------------------------------------------------------------------------

def airports():
    """(latitude, longitude, metres) of every airport in the contiguous United States."""
    with open(package_file("airportsdata", "airports.csv"), encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["country"] == "US" and row["subd"] not in NOT_CONTIGUOUS:
                feet = float(row["elevation"])
                yield float(row["lat"]), float(row["lon"]), feet * METRES_PER_FOOT


def write_airports():
    version = importlib.metadata.version("airportsdata")
    points = sorted(airports(), key=lambda p: (-p[0], p[1]))
    with open(HERE / "airports_us.csv", "w", encoding="ascii") as out:
        out.write("# Airports of the contiguous United States: degrees north, degrees east,"
                  " metres above the sea.\n"
                  f"# Source: airportsdata {version} (PyPI), by Mike Borsetti and mwgg."
                  "  Licence: MIT, see README.md.\n"
                  "lat,lon,elevation_m\n")
        for lat, lon, metres in points:
            out.write(f"{lat:.4f},{lon:.4f},{metres:.1f}\n")
    print(f"airports_us.csv: {len(points)} points")


# ---- the borders --------------------------------------------------------------------------------

def state_names():
    """FIPS codes in the order of the shapes: column STATEFP of the .dbf file."""
    data = package_file("_plotly_geo", "package_data", "cb_2016_us_state_500k.dbf").read_bytes()
    count, header, length = struct.unpack_from("<IHH", data, 4)
    return [data[header + i * length + 1:header + i * length + 3].decode() for i in range(count)]


def rings():
    """(state, [(lon, lat), ...]) for each ring of the contiguous states."""
    data = package_file("_plotly_geo", "package_data", "cb_2016_us_state_500k.shp").read_bytes()
    at, names = 100, iter(state_names())
    while at < len(data):
        words = struct.unpack_from(">I", data, at + 4)[0]
        state = next(names)
        nparts, npoints = struct.unpack_from("<II", data, at + 8 + 36)
        starts = struct.unpack_from(f"<{nparts}I", data, at + 8 + 44) + (npoints,)
        flat = struct.unpack_from(f"<{2 * npoints}d", data, at + 8 + 44 + 4 * nparts)
        if state not in NOT_CONTIGUOUS_FIPS:
            for begin, end in zip(starts, starts[1:]):
                yield state, list(zip(flat[2 * begin:2 * end:2], flat[2 * begin + 1:2 * end:2]))
        at += 8 + 2 * words


def area(ring):
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(ring, ring[1:]))) / 2


def simplify(line):
    """Douglas and Peucker's: keeps the ends and what lies off the straight line between them."""
    keep, todo = {0, len(line) - 1}, [(0, len(line) - 1)]
    while todo:
        first, last = todo.pop()
        (x0, y0), (x1, y1) = line[first], line[last]
        dx, dy = x1 - x0, y1 - y0
        length = math.hypot(dx, dy)
        worst, where = 0.0, None
        for i in range(first + 1, last):
            x, y = line[i][0] - x0, line[i][1] - y0
            off = abs(x * dy - y * dx) / length if length > 0 else math.hypot(x, y)
            if off > worst:
                worst, where = off, i
        if worst > TOLERANCE_DEG:
            keep.add(where)
            todo += [(first, where), (where, last)]
    return [line[i] for i in sorted(keep)]


def arcs(ring, users):
    """Cuts a closed ring where the set of states that share its vertices changes, so that two
    neighbours keep exactly the same simplified border."""
    points = ring[:-1]
    cuts = [i for i, p in enumerate(points)
            if users[p] != users[points[i - 1]] or users[p] != users[points[(i + 1) % len(points)]]]
    if not cuts:  # an island: fix two far points, so that it stays a ring
        cuts = [0, max(range(len(points)), key=lambda i: math.dist(points[0], points[i]))]
    points = points[cuts[0]:] + points[:cuts[0]] + [points[cuts[0]]]
    cuts = [i - cuts[0] for i in cuts] + [len(points) - 1]
    for first, last in zip(cuts, cuts[1:]):
        line = points[first:last + 1]
        if line[0] > line[-1]:  # one direction, whoever of the neighbours asks
            yield simplify(line[::-1])[::-1]
        else:
            yield simplify(line)


def write_states():
    version = importlib.metadata.version("plotly-geo")
    everything = [(state, ring) for state, ring in rings() if area(ring) >= SMALLEST_DEG2]
    users = {}
    for state, ring in everything:
        for point in ring:
            users.setdefault(point, set()).add(state)
    vertices = 0
    with open(HERE / "states_us.csv", "w", encoding="ascii") as out:
        out.write("# Borders and shores of the contiguous United States: closed rings, degrees"
                  " east, degrees north;\n# an empty line ends a ring.  Source: U.S. Census Bureau,"
                  " cb_2016_us_state_500k, public domain,\n"
                  f"# by way of plotly-geo {version} (PyPI).  Simplified, see README.md.\n"
                  "lon,lat\n")
        for _, ring in everything:
            line = [ring_part[i] for ring_part in arcs(ring, users)
                    for i in range(len(ring_part) - 1)]
            vertices += len(line)
            out.writelines(f"{lon:.3f},{lat:.3f}\n" for lon, lat in line)
            out.write("\n")
    print(f"states_us.csv: {len(everything)} rings, {vertices} vertices")


if __name__ == "__main__":
    write_airports()
    write_states()
