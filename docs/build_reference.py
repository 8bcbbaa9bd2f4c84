"""Write docs/reference/command-line.md and docs/reference/api.md: python docs/build_reference.py.

The first follows from the help of the commands, magics and pytest options, the second from signatures and docstrings.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import devwidget
from devwidget import integrations, magics, pytest_plugin
from devwidget.cli.main import _STATUS, _build_parser
from devwidget.language.speaking import said

FOLDER = Path(__file__).resolve().parent / "reference"
COMMAND_LINE, API = FOLDER / "command-line.md", FOLDER / "api.md"

OF_COMMANDS = """# Command line

`python -m devwidget COMMAND` runs these. `--help` after any of them lists its options.

{commands}

[Scripts and CI](../how-to/scripts-and-ci.md) shows how to use `run`, `check` and `fix apply`.

## Options

{options}

`show` and `html` also read [files of other tools](files.md#files-of-other-tools).

## Exit status

{status}

## Magics

`%load_ext devwidget` loads them.

{magics}

## pytest

The plugin is installed with devwidget; without these options it does nothing.

{pytest}

## Environment

`DEVWIDGET_SIMULATE="gpus=2,memory=16GiB"` gives a process virtual GPUs. `DEVWIDGET_RANKS` is the folder of the ranks of a job.
"""
OF_API = """# API

The public functions and classes of devwidget. `help(devwidget.trace)` describes the arguments of `trace`.
`devwidget.integrations` has {integrations}.

{functions}

## Records and widgets

Functions return records. A record is frozen, holds no tensor, and prints as a report. `help(devwidget.Plan)` describes the
fields of a plan. The classes are {records}.
"""
GROUPS = {
    "Look at a model": ("show", "snapshot", "trace", "record", "watch"),
    "Find problems": ("check", "explain", "try_edit", "memory_holders", "allow", "compare"),
    "Without GPUs": ("simulate", "plan", "place"),
    "Many ranks": ("serve", "ranks"),
    "Files and language": ("load", "open", "set_language"),
}
"""Heading -> functions below it."""


def main() -> None:
    """Write both pages."""
    devwidget.set_language("en")
    COMMAND_LINE.write_text(command_line_page(), encoding="utf-8")
    API.write_text(api_page(), encoding="utf-8")


def command_line_page() -> str:
    """All commands, options, magics and options of pytest."""
    parsers = dict(parsers_of(_build_parser()))
    commands = [(usage(name, each), descriptions(_build_parser())[name]) for name, each in parsers.items()]
    lines = [line.split("  ", 1) for line in magics.usage_lines().splitlines()]
    parts = {
        "commands": bullets((f"`{line}`", words) for line, words in commands),
        "options": bullets(option_rows(parsers)),
        "status": bullets((status, said(words)) for status, words in _STATUS),
        "magics": bullets((f"`{line}`", words.strip()) for line, words in lines),
        "pytest": bullets(pytest_rows()),
    }
    return OF_COMMANDS.format(**parts)


def bullets(rows: Iterable[tuple[str, str]]) -> str:
    """A list of names and what they do; the words alone where there is no name."""
    return "\n".join(f"* {': '.join(filter(None, row))}" for row in rows)


def subcommands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    """The action that holds the commands below a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action
    return None


def parsers_of(parser: argparse.ArgumentParser, before: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Name and parser of each command that has none below it, such as `fix apply`."""
    below = subcommands(parser)
    if below is None:
        yield before, parser
        return
    for name, each in below.choices.items():
        yield from parsers_of(each, f"{before} {name}".strip())


def descriptions(parser: argparse.ArgumentParser, before: str = "") -> dict[str, str]:
    """What each command does, by its name."""
    below = subcommands(parser)
    if below is None:
        return {}
    found = {}
    for action in below._choices_actions:
        name = f"{before} {action.dest}".strip()
        found |= {name: action.help or "", **descriptions(below.choices[action.dest], name)}
    return found


def usage(name: str, parser: argparse.ArgumentParser) -> str:
    """`run TARGET ...`"""
    words = [str(action.metavar or action.dest) for action in parser._actions if not action.option_strings]
    return " ".join([name, *words])


def option_rows(parsers: dict[str, argparse.ArgumentParser]) -> list[tuple[str, str]]:
    """Each option once for each of its meanings, with the commands that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, parser in parsers.items():
        for action in parser._actions:
            if action.option_strings and not isinstance(action, argparse._HelpAction):
                found.setdefault((option_text(action), meaning(action)), []).append(name)
    return [(f"`{option}` ({', '.join(names)})", words) for (option, words), names in found.items()]


def option_text(action: argparse.Action) -> str:
    """`--gpus N`, `--verify auto|yes|no` or `--heal`."""
    option = action.option_strings[-1]
    if action.nargs == 0:
        return option
    if action.choices:
        return f"{option} {'|'.join(map(str, action.choices))}"
    return f"{option} {action.metavar or action.dest.upper()}"


def meaning(action: argparse.Action) -> str:
    """The help of an option, without its default."""
    return (action.help or "").partition(" (default")[0]


def pytest_rows() -> list[tuple[str, str]]:
    """The options of the plugin."""
    rows: list[tuple[str, str]] = []

    class Parser:
        """Notes what is added, in place of pytest's own parser."""

        def getgroup(self, *names: str) -> Parser:
            return self

        def addoption(self, option: str, metavar: str = "", help: str = "", **others: Any) -> None:
            rows.append((f"`{f'{option} {metavar}'.strip()}`", help))

    pytest_plugin.pytest_addoption(Parser())  # type: ignore[arg-type]
    return rows


def api_page() -> str:
    """All public names."""
    names = set(devwidget.__all__) - {"__version__"}
    functions = {name for name in names if not inspect.isclass(getattr(devwidget, name))}
    assert functions == {name for group in GROUPS.values() for name in group}, "list each function in GROUPS"
    sections = [f"## {title}\n\n{bullets(map(call_row, group))}" for title, group in GROUPS.items()]
    parts = {
        "functions": "\n\n".join(sections),
        "records": ", ".join(f"`{name}`" for name in sorted(names - functions)),
        "integrations": ", ".join(f"`{name}`" for name in integrations.__all__),
    }
    return OF_API.format(**parts)


def call_row(name: str) -> tuple[str, str]:
    """The call with its arguments and defaults, and the first sentence of its docstring."""
    function = getattr(devwidget, name)
    signature = inspect.signature(function)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    arguments = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return f"`{name}{arguments}`", first_sentence(function)


def first_sentence(documented: object) -> str:
    """The summary of a docstring on one line."""
    return inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    main()
