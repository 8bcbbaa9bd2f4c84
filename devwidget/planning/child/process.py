"""Asks a child process, which sees no GPU, what cannot be answered in this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from devwidget import simulator
from devwidget.planning.child import letters
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.simulator import torch_internals
from devwidget.simulator.accelerator import CUDA

Answer = TypeVar("Answer")
QUESTION, ANSWER = "question", "answer"
PROGRAM = "import sys; sys.path[:0] = sys.argv[2:]; from devwidget.planning.child.process import main; main(sys.argv[1])"
LAST_LINES = 3


def ask(question: Callable[..., Answer], *about: Any) -> Answer:
    """Call a function here, or in a child process where virtual GPUs are running or real ones were used.

    Args:
        question: a function of this package.
        about: what it is given; a child has it without the values of large tensors.

    Raises:
        DevwidgetError: if it cannot be sent there, or the child does not answer.
    """
    if simulator.active() is None and not torch_internals.is_started(CUDA):
        return question(*about)
    letter = letters.write(question, *about)
    with tempfile.TemporaryDirectory(prefix="devwidget-") as folder:
        Path(folder, QUESTION).write_bytes(letter)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder, *sys.path],
            env={**os.environ, CUDA.visible_variable: ""},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace", check=False,
        )  # fmt: skip
        print(done.stdout, end="")  # what the model prints while it runs
        if not Path(folder, ANSWER).exists():
            last = " ".join(done.stderr.splitlines()[-LAST_LINES:])
            raise DevwidgetError(
                Message("the process that was to plan ended with {returncode}: {last}", returncode=done.returncode, last=last)
            )
        found: Answer = letters.read(Path(folder, ANSWER).read_bytes())
        return found


def main(folder: str) -> None:
    """Answer the question that lies in a folder."""
    Path(folder, ANSWER).write_bytes(letters.answer(Path(folder, QUESTION).read_bytes()))
