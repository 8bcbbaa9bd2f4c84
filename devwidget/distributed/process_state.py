"""What the machine says of a process that says nothing itself."""

from __future__ import annotations

import pathlib
from typing import Literal

ProcessState = Literal["running", "stopped", "gone", "unknown"]

_PROCESSES = pathlib.Path("/proc")


def process_state(pid: int) -> ProcessState:
    """Whether a process of this machine runs, is stopped by a signal, or is gone; `unknown` where there is no `/proc`."""
    if pid <= 0 or not (_PROCESSES / "self").exists():
        return "unknown"
    try:
        letter = (_PROCESSES / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # it ended between two steps
        return "gone"
    return "gone" if letter in "ZX" else "stopped" if letter in "Tt" else "running"
