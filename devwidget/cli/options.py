"""Options that several commands share, and the line that commands are added to."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field

from devwidget.cli import commands
from devwidget.language.speaking import said, say
from devwidget.records.finding import SEVERITIES


@dataclass
class CommandLine:
    """The command line while it is built.

    Attributes:
        add: adds a command: its name and its `help`; gives its parser.
        run: the parser of `run`; `otherwise` of its options is what runs the program in another way.
        examples: lines, and what each does.
    """

    add: Callable[..., argparse.ArgumentParser]
    run: argparse.ArgumentParser
    examples: list[tuple[str, str]] = field(default_factory=list)


def absolute_path(text: str) -> pathlib.Path:
    """Absolute, because a script may go elsewhere before its report is written."""
    return pathlib.Path(text).absolute()


def file_to_write(text: str) -> pathlib.Path:
    """One that can be written, as far as can be told before the program has run."""
    path = absolute_path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(say("{path} is a folder, not a file to write", path=path))
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(say("there is no folder {folder} to write a file in", folder=path.parent))
    return path


def file_to_read(text: str) -> pathlib.Path:
    """A file that exists."""
    path = absolute_path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(say("there is no file {path}", path=path))
    return path


def number_of_gpus(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(say("{given} is no number of GPUs, which begins at 1", given=repr(text)))
    return int(text)


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Add the function that makes model and batch."""
    words = say("a function that returns (model, batch), or a dict of the arguments of devwidget.trace; file.py:function too")
    parser.add_argument("subject", metavar="MODULE:FUNCTION", help=words)


def add_gpus(parser: argparse.ArgumentParser, default: int = 0) -> None:
    """Add what virtual GPUs there are."""
    parser.add_argument("--gpus", metavar="N", type=number_of_gpus, default=default, help=say("how many virtual GPUs"))
    of_each = parser.add_mutually_exclusive_group()
    of_each.add_argument("--memory", metavar="SIZE", help=say("of each GPU, such as 16GiB"))
    of_each.add_argument("--card", metavar="NAME", help=say("the kind of card that each is, such as A100-80GB"))


def add_judging(parser: argparse.ArgumentParser, fail_on: str | None = None) -> None:
    """Add what is meant, what fails, and which files are written."""
    parser.add_argument("--allow", metavar="HOP", action="append", default=[], help=say('a hop that is meant: "cuda:0 -> cpu"'))
    least = say("the least severity that makes the exit status 1")
    if fail_on:
        least = say("{option} (default: {value})", option=least, value=fail_on)
    parser.add_argument("--fail-on", choices=SEVERITIES, default=fail_on, help=least)
    for name, words in commands.FILES.items():
        parser.add_argument(f"--{name}", dest=name, metavar="FILE", type=file_to_write, help=said(words))
