"""The example of a format on the command line."""

from __future__ import annotations

from devwidget.cli.options import CommandLine
from devwidget.records.schema.message import Message


def add_commands(line: CommandLine) -> None:
    """Say how a trace is written for other programs."""
    line.examples.append(
        ("python -m devwidget show trace.json --format sarif", Message("text, json, brief (json within 4 kB), sarif, ..."))
    )
