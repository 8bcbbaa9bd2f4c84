"""Options that several commands share, and the command line that extras add commands to."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field

from devwidget.cli import commands
from devwidget.records.finding import SEVERITIES


@dataclass
class CommandLine:
    """The command line while it is built.

    Attributes:
        add: Adds a command, given its name and `help`, and returns its parser.
        run: The parser of `run`; its default `otherwise` runs the program in another way.
        examples: Example lines with their description.
    """

    add: Callable[..., argparse.ArgumentParser]
    run: argparse.ArgumentParser
    examples: list[tuple[str, str]] = field(default_factory=list)


def absolute_path(text: str) -> pathlib.Path:
    """Return an absolute path, because a script may change the working directory before its report is written."""
    return pathlib.Path(text).absolute()


def file_to_write(text: str) -> pathlib.Path:
    """Return the path of a file to write.

    Raises:
        ArgumentTypeError: If the path is a folder, or its folder does not exist.
    """
    path = absolute_path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder, not a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent} to write a file in")
    return path


def file_to_read(text: str) -> pathlib.Path:
    """Return the path of an existing file.

    Raises:
        ArgumentTypeError: If there is no such file.
    """
    path = absolute_path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {path}")
    return path


def number_of_gpus(text: str) -> int:
    """Parse a whole number of 1 or more.

    Raises:
        ArgumentTypeError: If it is not one.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs; use 1 or more")
    return int(text)


def add_subject(parser: argparse.ArgumentParser, others: str = "") -> None:
    """Add the argument that names the function with model and batch, and `others` that a command takes."""
    words = "a function that returns (model, batch) or a dict of arguments of devwidget.trace; or file.py:function" + others
    parser.add_argument("subject", metavar="MODULE:FUNCTION", help=words)


def add_gpus(parser: argparse.ArgumentParser, default: int = 0) -> None:
    """Add the options for virtual GPUs."""
    parser.add_argument("--gpus", metavar="N", type=number_of_gpus, default=default, help="number of virtual GPUs")
    of_each = parser.add_mutually_exclusive_group()
    of_each.add_argument("--memory", metavar="SIZE", help="memory of each GPU, such as 16GiB")
    of_each.add_argument("--card", metavar="NAME", help="type of each GPU, such as A100-80GB")


def add_judging(parser: argparse.ArgumentParser, fail_on: str | None = None) -> None:
    """Add the options for intended transfers, failing severities and files to write."""
    parser.add_argument("--allow", metavar="HOP", action="append", default=[], help='an intended transfer: "cuda:0 -> cpu"')
    least = "return exit status 1 for findings of at least this severity"
    if fail_on:
        least = f"{least} (default: {fail_on})"
    parser.add_argument("--fail-on", choices=SEVERITIES, default=fail_on, help=least)
    portable = "also report the lines that are written for CUDA; a script is run again with their edits"
    parser.add_argument("--portable", action="store_true", help=portable)
    for name, words in commands.FILES.items():
        parser.add_argument(f"--{name}", dest=name, metavar="FILE", type=file_to_write, help=words)
