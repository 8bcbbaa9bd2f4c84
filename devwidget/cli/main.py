"""The commands and their options. Parsing them does not load torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence

from devwidget import extras
from devwidget._version import __version__
from devwidget.cli import commands
from devwidget.cli.options import CommandLine, absolute_path, add_gpus, add_judging, add_subject, file_to_read, file_to_write
from devwidget.records.errors import DevwidgetError

EXAMPLES = (
    ("python -m devwidget run train.py --epochs 1", "run the script unchanged, then report what went wrong"),
    ("python -m devwidget run --gpus 2 train.py", "the same, on two virtual GPUs"),
    ("python -m devwidget run --gpus 1 -m package.train", "a module instead of a script"),
    (
        "python -m devwidget run --gpus 2 torchrun --nproc-per-node 2 train.py",
        "a job whose processes use virtual GPUs too",
    ),
    ("python -m devwidget check --gpus 2 train:step", "trace one step: train.step() returns (model, batch)"),
    ("python -m devwidget html trace.json report.html", ""),
    ("python -m devwidget compare before.json after.json", ""),
    ("python -m devwidget fix apply trace.json", "write the fixes, with confirmation and a backup"),
)
_WIDE = 56
_STATUS = (
    ("0", "nothing to report (check, compare), it fits (plan), or every rank is healthy (diagnose)"),
    ("1", "findings (check), new findings (compare), it does not fit (plan), or a rank has a problem (diagnose)"),
    ("2", "failed: wrong arguments, a missing file, or an exception in the code to be checked"),
    (
        "",
        "`run` returns the exit status of the script; with --fail-on, 1 if the script succeeded and there are such findings.",
    ),
)


def _epilog_text(examples: Iterable[tuple[str, str]]) -> str:
    lines = ["examples:", *(f"  {line:<{_WIDE if words else 0}}{words}" for line, words in examples)]
    lines += ["", "exit status:", *(f"  {status:<{3 if status else 0}}{words}" for status, words in _STATUS)]
    return "\n".join([*lines, ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status.
    """
    options = _build_parser().parse_args(argv)
    try:
        ended: int | BaseException = options.command(options)
    except DevwidgetError as error:
        print(f"devwidget: {error}", file=sys.stderr)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    else:
        if isinstance(ended, BaseException):  # of the program that was run: Python makes the exit status of it
            raise ended
        return ended
    return 2


def _build_parser() -> argparse.ArgumentParser:
    words = "Show the device of every tensor in a PyTorch program, and the line that fixes a wrong one."
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m devwidget", description=words, formatter_class=plain)
    version = "show program's version number and exit"
    parser.add_argument("--version", action="version", version=f"devwidget {__version__}", help=version)
    add = parser.add_subparsers(required=True, metavar="COMMAND").add_parser

    run = add("run", help="run a script or module unchanged, and report")
    add_gpus(run)
    run.add_argument("--heal", action="store_true", help="move misplaced tensors and continue, to find every fault")
    add_judging(run)
    run.add_argument("-m", dest="module", action="store_true", help="TARGET is a module, as in python -m")
    run.add_argument("target", metavar="TARGET", help="a script, or a module with -m")
    run.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")
    run.set_defaults(command=commands.run_program, otherwise=None)
    line = CommandLine(add, run)

    check = add("check", help="run one training step, and report")
    add_gpus(check)
    add_judging(check, fail_on="warning")
    words = "verify fixes by re-running the step: only where it has no side effects (auto), always, or never"
    check.add_argument("--verify", choices=commands.VERIFY, help=words)
    check.add_argument("--baseline", metavar="FILE", type=file_to_read, help="a saved trace: fail only on new findings")
    add_subject(check)
    check.set_defaults(command=commands.check_step)

    for module in extras.load_all("commands"):
        module.add_commands(line)

    show = add("show", help="print a saved record")
    show.add_argument("file", metavar="FILE", type=absolute_path)
    show.add_argument("--format", choices=commands.FORMATS, default="text", help="output format of a trace")
    show.set_defaults(command=commands.show_record)

    html = add("html", help="write a saved record as one HTML page")
    html.add_argument("file", metavar="FILE", type=absolute_path)
    html.add_argument("out", metavar="OUT", type=file_to_write)
    html.set_defaults(command=commands.write_page)

    compare = add("compare", help="show what changed between two saved traces")
    compare.add_argument("before", metavar="BEFORE", type=absolute_path)
    compare.add_argument("after", metavar="AFTER", type=absolute_path)
    compare.set_defaults(command=commands.compare_records)

    copies = add("check-copies", help="copy random bytes between all GPUs, and compare what arrives")
    add_gpus(copies)
    copies.set_defaults(command=commands.check_copies)

    fix = add("fix", help="write the fixes of a saved trace to your files").add_subparsers(required=True, metavar="ACTION")
    apply = fix.add_parser("apply", help="apply the first fix of each finding, with a backup of each file")
    apply.add_argument(
        "file", metavar="FILE", type=absolute_path, help="a file written by `run --save FILE` or `check --save FILE`"
    )
    apply.add_argument("--kind", metavar="KIND", help="only findings of this kind, such as wrong-device")
    apply.add_argument("--yes", action="store_true", help="write without asking")
    apply.set_defaults(command=commands.apply_fixes)
    parser.epilog = _epilog_text([*EXAMPLES, *line.examples])
    return parser
