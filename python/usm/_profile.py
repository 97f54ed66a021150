"""usm.profile(): records what the body does with memory, and ends in a page for the browser.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import Iterator

from ._library import HERE, lib

_used = False


def usm_prof() -> str:
    """The program: the wheel's, that of the build tree around the library, else the system's."""
    folders = [os.path.join(HERE, "bin"),
               os.path.join(os.path.dirname(os.path.realpath(lib._name)), "..", "bin")]
    found = shutil.which("usm-prof", path=os.pathsep.join(folders)) or shutil.which("usm-prof")
    if not found:
        raise RuntimeError("usm-prof was not found beside the library or in PATH: it makes the page")
    return found


@contextlib.contextmanager
def profile(path: str | os.PathLike[str] = "usm.html") -> Iterator[None]:
    """Once in a process, and before its first array, pool or file: libusm looks then whether it is
    to record.  The trace stays beside the page, as `path` with .trace behind it."""
    global _used
    if _used:
        raise RuntimeError("usm.profile() records once in a process")
    program, trace = usm_prof(), os.fspath(path) + ".trace"
    with contextlib.suppress(FileNotFoundError):
        os.remove(trace)
    _used = True
    lib.usm_config_set(b"trace", os.fsencode(trace))
    try:
        yield
    finally:
        lib.usm_init()  # a pair of these two writes out what was recorded, and ends nothing
        lib.usm_shutdown()
        if not os.path.exists(trace):
            raise RuntimeError("nothing was recorded: memory was allocated before usm.profile()")
        subprocess.run([program, "report", trace, "--html", os.fspath(path)], check=True,
                       stdout=subprocess.DEVNULL)
