"""Hands virtual GPUs on to processes that this one starts: by multiprocessing, and as commands of the same Python.

A fork has them anyway. One that multiprocessing spawns, or has a fork server fork, unpickles what it needs to know before
the program's main module is imported, so what begins virtual GPUs lies in there. A command begins with nothing of ours: where
it runs this Python on a script, a module or a line of code, a line of ours begins in its place and runs that.
"""

from __future__ import annotations

import itertools
import multiprocessing.spawn
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from devwidget.gpus.patching import Patches, replaces
from devwidget.gpus.virtual_machine import VirtualMachine, write_cluster
from devwidget.records.device import SIMULATE_VARIABLE as VARIABLE

ROOT = str(Path(__file__).parents[3])
"""The folder that the package is in."""
BEGIN = f"import sys; sys.path.append({ROOT!r}); from devwidget.cli.simulated_program import main; sys.path.pop(); main()"
"""Code that runs before the program of a command."""
BEGIN_SPAWNED = (
    "import sys; sys.path[:] = {path!r}; from devwidget.cli.inherited_gpus import begin_with_torch; begin_with_torch({text!r})"
)
"""What a spawned process does first; multiprocessing sets the same path right after."""


def install_inheritance(patches: Patches, cluster: VirtualMachine) -> None:
    """Have processes that begin from now on inherit these GPUs."""
    text = write_cluster(cluster)
    patches.undo.add_step(_put_variable_back, text, os.environ.get(VARIABLE))
    os.environ[VARIABLE] = text


def _put_variable_back(ours: str, before: str | None) -> None:
    if os.environ.get(VARIABLE) != ours:
        return  # the program's own by now
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before


class _Beginning:
    """Begins virtual GPUs where it is unpickled."""

    def __init__(self, path: list[str], text: str) -> None:
        self._path, self._text = path, text

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        # Source text and no function of ours: the path on which this package lies is not known there yet.
        return exec, (BEGIN_SPAWNED.format(path=self._path, text=self._text),)


@replaces(multiprocessing.spawn, "get_preparation_data")
def _add_to_preparation(original: Callable[[str], dict[str, Any]], name: str) -> dict[str, Any]:
    prepared = original(name)
    text = os.environ.get(VARIABLE)
    if text:
        prepared["devwidget"] = _Beginning(prepared["sys_path"], text)
    return prepared


@replaces(subprocess.Popen, "__init__")
def _begin_command_simulated(original: Callable[..., None], self: Any, args: Any, *rest: Any, **options: Any) -> None:
    environment = os.environ if options.get("env") is None else options["env"]
    has_other_program = rest or options.get("shell") or options.get("executable") is not None
    changed = None if has_other_program or not environment.get(VARIABLE) else change_command(args)
    original(self, args if changed is None else changed, *rest, **options)
    if changed is not None:
        self.args = args  # as errors and debuggers show it


def change_command(args: Any) -> list[str] | None:
    """Return the command that runs the same program on virtual GPUs; None if the command needs no change."""
    words = list(map(os.fsdecode, [args] if isinstance(args, (str, bytes, os.PathLike)) else args))
    found = shutil.which(words[0]) if words else None
    if found is None:
        return None
    if _is_this_python(found):
        command = split_command(words[1:])
        return command and [words[0], *command.options, "-c", BEGIN, *command.program]
    if _is_script_of_this_python(found):
        return [sys.executable, "-c", BEGIN, found, *words[1:]]
    return None


def _is_this_python(path: str) -> bool:
    """Whether it is the Python that runs here, under any of its names in the folder of the environment."""
    return Path(path).name.startswith("python") and os.path.dirname(os.path.abspath(path)) == os.path.dirname(sys.executable)


def _is_script_of_this_python(path: str) -> bool:
    """Whether it is a script as pip installs them, such as `torchrun`."""
    try:
        with open(path, "rb") as file:
            first, second = (file.readline(512).decode(errors="replace").strip() for _ in range(2))
    except OSError:
        return False
    by_shell = _BY_SHELL.match(second) if first == "#!/bin/sh" else None
    return _is_this_python(by_shell[1] if by_shell is not None else first.removeprefix("#!"))


_BY_SHELL = re.compile("'''exec' \"([^\"]*)\"")
"""How pip writes a script for a Python whose path has a space, or is long."""


class Command(NamedTuple):
    """The arguments of `python`: its options, and the program with its arguments, after `-m` or `-c` for a module or code."""

    options: list[str]
    program: list[str]


def split_command(words: Sequence[str]) -> Command | None:
    """Tell Python's options from the program; None if it names no program, or reads it from a pipe."""
    rest = iter(words)
    options: list[str] = []
    for word in rest:
        if not word.startswith("-"):
            return Command(options, [word, *rest])
        if word == "-":
            return None
        found = _WITH_VALUE.fullmatch(word)
        if found is None:
            options.append(word)
            if word == "--check-hash-based-pycs":
                options += itertools.islice(rest, 1)
            continue
        flags, kind, value = found[1], found[2], found[3] or next(rest, None)
        if flags:
            options.append(f"-{flags}")
        if value is None:
            return None
        if kind in "mc":
            return Command(options, [f"-{kind}", value, *rest])
        options += [f"-{kind}", value]
    return None


_WITH_VALUE = re.compile(r"-([^-mcXW]*)([mcXW])(.*)", re.DOTALL)
"""`-ubm`: options without a value, the one that takes one, and the part of the value that is in the word."""
