#!/usr/bin/env python3
"""link.py [--cut FILE SECONDS] LATENCY_MS BYTES_PER_S COMMAND: runs a command behind a slow link.

What comes in on the standard input reaches the command, and what the command writes the standard output,
LATENCY_MS later, at BYTES_PER_S in each direction.  Once FILE exists nothing is forwarded for SECONDS,
and nothing is lost: what has come waits.  Ends with the command.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import os
import subprocess
import sys
import threading
import time

CHUNK = 65536


class Cut:
    """A time in which nothing passes; it begins when the file is first seen."""

    def __init__(self, file, seconds):
        self.file, self.seconds = file, seconds
        self.lock = threading.Lock()
        self.end = None

    def wait(self):
        with self.lock:
            if self.end is None and self.file and os.path.exists(self.file):
                self.end = time.monotonic() + self.seconds
        if self.end is not None:
            time.sleep(max(0.0, self.end - time.monotonic()))


class Direction:
    """One direction: a thread that reads, and one that writes what is due."""

    def __init__(self, source, target, latency, rate, cut):
        self.source, self.target, self.latency, self.rate, self.cut = source, target, latency, rate, cut
        self.queue = []
        self.came = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        self.writer = threading.Thread(target=self.write, daemon=True)
        self.writer.start()

    def read(self):
        free = 0.0
        while True:
            data = os.read(self.source, CHUNK)
            free = max(free, time.monotonic()) + len(data) / self.rate
            with self.came:
                self.queue.append((free + self.latency, data))
                self.came.notify()
            if not data:
                return

    def write(self):
        while True:
            with self.came:
                while not self.queue:
                    self.came.wait()
                due, data = self.queue.pop(0)
            time.sleep(max(0.0, due - time.monotonic()))
            self.cut.wait()
            if not data:
                os.close(self.target)
                return
            try:
                while data:
                    data = data[os.write(self.target, data):]
            except BrokenPipeError:
                return


def main():
    words = sys.argv[1:]
    cut = Cut(None, 0.0)
    if words[0] == "--cut":
        cut = Cut(words[1], float(words[2]))
        words = words[3:]
    latency, rate, command = float(words[0]) / 1e3, float(words[1]), words[2]
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        Direction(0, os.dup(child.stdin.fileno()), latency, rate, cut)
        child.stdin.close()
        back = Direction(child.stdout.fileno(), os.dup(1), latency, rate, cut)
        status = child.wait()
        back.writer.join()
    os._exit(status if status >= 0 else 128 - status)


main()
