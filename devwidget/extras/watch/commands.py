"""`python -m devwidget run --watch`."""

from __future__ import annotations

import dataclasses
import os
from argparse import Namespace

from devwidget.cli.commands import choose_status, refuse_unwritable, report_run, run_inside, virtual_gpus
from devwidget.cli.options import CommandLine
from devwidget.language.speaking import say
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.report.writers import find_writer


def add_commands(line: CommandLine) -> None:
    """Add the option `--watch` of `run`."""
    watched = "python -m devwidget run --watch --save watch.jsonl train.py"
    line.examples.append((watched, Message("watch all steps of a training run with hooks, and save them while it runs")))
    words = say(
        "watch the steps of the trained model instead of recording the whole program; --save FILE is written while it runs"
    )
    line.run.add_argument("--watch", dest="otherwise", action="store_const", const=watch_program, help=words)


def watch_program(options: Namespace) -> int | BaseException:
    """Run a program, watch its steps, and report."""
    from devwidget.extras.watch.api import watch_program as begin_watch

    _refuse_for_watch(options)
    process = os.getpid()
    virtual_gpus(options).__enter__()
    watching = begin_watch(options.save)
    ended = run_inside(watching, options)
    run = watching.result
    if os.getpid() == process:
        report_run(dataclasses.replace(run, error=run.error.partition(":")[0]))
        with refuse_unwritable():
            if options.html is not None:
                run.to_html(options.html)
            if getattr(options, "sarif", None) is not None:
                options.sarif.write_bytes(f"{find_writer('sarif').write(run, '.')}\n".encode())
    return choose_status(ended, run.findings, options)


_ONLY_RECORDED = ("heal", "allow", "portable", "json", "brief", "perfetto")


def _refuse_for_watch(options: Namespace) -> None:
    for name in _ONLY_RECORDED:
        if getattr(options, name, None):
            raise DevwidgetError(
                Message("{option} cannot be combined with --watch", option=f"--{name.replace('_', '-')}"),
                instead="python -m devwidget run --watch --save watch.jsonl train.py",
            )
