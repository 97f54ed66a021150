#!/usr/bin/env python3
"""resident.py: what the samples of managed memory share, and the picture of them.

    python3 resident.py PICTURE.png [--size MiB]     # runs them and draws; needs matplotlib

Each works on data of four times USM_MEMORY_LIMIT, and looks how much memory the process has meanwhile.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time

ORDINARY = 32 << 20  # most that the program and its packages may take for themselves, beside the data
SAMPLES = {"managed_numpy.py": "NumPy: moving mean and deviation",
           "managed_pandas.py": "pandas: groupby().sum() over a DataFrame",
           "managed_sklearn.py": "scikit-learn: MiniBatchKMeans"}


def arguments(text):
    """(bytes of data, file for the trace or None); sets the limit, so that usm comes after it."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--size", type=int, default=128, help="MiB of data")
    parser.add_argument("--trace", help="file for lines of seconds and resident bytes")
    args = parser.parse_args()
    os.environ["USM_MEMORY_LIMIT"] = "host:{}M".format(args.size // 4)
    os.environ.setdefault("USM_DEVICE_SELECTOR", "host:*")  # drivers would be in the picture
    return args.size << 20, args.trace


class Watch:
    """While the body runs: how much more memory the process has than at its beginning."""

    def __init__(self, size, trace=None):
        self.size, self.trace, self.samples = size, trace, []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        begin, base = time.monotonic(), resident()
        while not self._end.wait(0.005):
            self.samples.append((time.monotonic() - begin, resident() - base))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        if self.trace:
            with open(self.trace, "w") as file:
                file.writelines("{} {}\n".format(*sample) for sample in self.samples)

    def report(self, is_right):
        """Says what came out; the exit status."""
        peak = max(amount for _, amount in self.samples)
        is_within = peak <= self.size // 4 + ORDINARY
        print("{} MiB of data, a limit of {} MiB: {} MiB were resident: {}; the result is {}".format(
            self.size >> 20, self.size >> 22, peak >> 20, "within" if is_within else "TOO MUCH",
            "right" if is_right else "WRONG"))
        return 0 if is_right and is_within else 1


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def draw(path, size):
    from matplotlib import pyplot
    gray, blue, red = "#808080", "#4c8dd6", "#d6604d"  # seen on black and on white
    pyplot.rcParams.update({"text.color": gray, "axes.edgecolor": gray, "axes.labelcolor": gray,
                            "xtick.color": gray, "ytick.color": gray, "font.size": 9})
    figure, panels = pyplot.subplots(1, len(SAMPLES), figsize=(11, 3), sharey=True,
                                     layout="constrained")
    here = os.path.dirname(os.path.abspath(__file__))
    for panel, (script, title) in zip(panels, SAMPLES.items()):
        with tempfile.NamedTemporaryFile("r") as trace:
            subprocess.run([sys.executable, os.path.join(here, script), "--size", str(size),
                            "--trace", trace.name], check=True)
            rows = [tuple(map(float, line.split())) for line in trace]
        panel.fill_between([t for t, _ in rows], [n / 2**20 for _, n in rows], color=blue, alpha=0.5,
                           linewidth=0)
        panel.axhline(size, color=gray, linewidth=1)
        panel.axhline(size / 4, color=red, linewidth=1)
        panel.text(0, size * 0.97, "data", va="top")
        panel.text(0, size * 0.27, "USM_MEMORY_LIMIT", color=red)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("seconds")
        panel.set_ylim(0, size * 1.05)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("resident MiB")
    figure.savefig(path, dpi=110, transparent=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="draws what the samples have resident")
    parser.add_argument("picture")
    parser.add_argument("--size", type=int, default=512, help="MiB of data")
    parsed = parser.parse_args()
    draw(parsed.picture, parsed.size)
