"""The commands and their options; nothing of torch is loaded to read them."""

from __future__ import annotations

import argparse
import gettext
import os
import pathlib
import sys
from collections.abc import Sequence

from devwidget._version import __version__
from devwidget.cli import commands
from devwidget.language.speaking import CATALOGUES, DOMAIN, said, say
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import SEVERITIES
from devwidget.records.schema.message import Message

EXAMPLES = (
    ("python -m devwidget run train.py --epochs 1", Message("the script as it is, then a report of what went wrong")),
    ("python -m devwidget run --gpus 2 train.py", Message("the same on two virtual GPUs")),
    (
        "python -m devwidget run --watch --save watch.jsonl train.py",
        Message("all steps of a training run, by hooks, in a file that grows"),
    ),
    ("python -m devwidget run --gpus 1 -m package.train", Message("a module in place of a script")),
    ("python -m devwidget run --gpus 2 torchrun --nproc-per-node 2 train.py", Message("a job whose processes have them too")),
    (
        "torchrun --nproc-per-node 4 -m devwidget run train.py",
        Message("each rank answers devwidget.ranks(), and is not watched"),
    ),
    ("python -m devwidget diagnose /shared/job", Message("the verdict on the ranks of a job, in ten lines")),
    ("python -m devwidget check --gpus 2 train:step", Message("one step: train.step() returns (model, batch)")),
    ("python -m devwidget plan train:step --gpus 4 --memory 24GiB", ""),
    ("python -m devwidget plan hf:ORG/NAME --card A100-80GB", ""),
    ("python -m devwidget show trace.json --format sarif", Message("text, json, brief (json within 4 kB), sarif, ...")),
    ("python -m devwidget html trace.json report.html", ""),
    ("python -m devwidget compare before.json after.json", ""),
    ("python -m devwidget fix apply trace.json", Message("write the edits, after a question, with a backup")),
)
_WIDE = 56
_STATUS = (
    ("0", Message("nothing to report (check, compare), it fits (plan), or every rank is well (diagnose)")),
    ("1", Message("findings (check), new findings (compare), it does not fit (plan), or a rank is not well (diagnose)")),
    ("2", Message("it could not be done: wrong arguments, no such file, or the code to be checked raised an exception")),
    ("", Message("`run` ends as the script ends; with --fail-on, 1 if the script ended well and there are such findings.")),
)


_OF_ARGPARSE = (
    Message("usage: "),
    Message("positional arguments"),
    Message("options"),
    Message("show this help message and exit"),
    Message("%(prog)s: error: %(message)s\n"),
    Message("argument %(argument_name)s: %(message)s"),
    Message("the following arguments are required: %s"),
    Message("unrecognized arguments: %s"),
    Message("expected one argument"),
    Message("invalid %(type)s value: %(value)r"),
    Message("invalid choice: %(value)r (choose from %(choices)s)"),
    Message("not allowed with argument %s"),
)
"""What Python itself says on a command line, for which it asks gettext."""


def _parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; for this while Python's own words are looked up in our catalogue."""
    before = gettext.textdomain()
    gettext.bindtextdomain(DOMAIN, str(CATALOGUES))
    gettext.textdomain(DOMAIN)
    try:
        return _build_parser().parse_args(argv)
    finally:
        gettext.textdomain(before)


def _epilog_text() -> str:
    lines = [say("examples:"), *(f"  {line:<{_WIDE if words else 0}}{said(words)}" for line, words in EXAMPLES)]
    lines += ["", say("exit status:"), *(f"  {status:<{3 if status else 0}}{said(words)}" for status, words in _STATUS)]
    return "\n".join([*lines, ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    options = _parse_options(argv)
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
    words = say("See where every tensor of a PyTorch program lives, and get the line that fixes a wrong device.")
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m devwidget", description=words, epilog=_epilog_text(), formatter_class=plain)
    version = say("show program's version number and exit")
    parser.add_argument("--version", action="version", version=f"devwidget {__version__}", help=version)
    add = parser.add_subparsers(required=True, metavar="COMMAND").add_parser

    run = add("run", help=say("run a script or module as it is, and report"))
    _add_gpus(run)
    run.add_argument("--heal", action="store_true", help=say("repair each device fault in passing and go on, to find them all"))
    _add_judging(run)
    run.add_argument(
        "--verify-hops", action="store_true", help=say("compare checksums at both ends of every copy between GPUs")
    )
    words = say("watch the steps of the model that it trains, in place of recording all of it; --save FILE grows with the run")
    run.add_argument("--watch", action="store_true", help=words)
    run.add_argument("-m", dest="module", action="store_true", help=say("TARGET is a module, as for python -m"))
    run.add_argument("target", metavar="TARGET", help=say("a script, or a module with -m"))
    run.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help=say("the arguments of the script"))
    run.set_defaults(command=commands.run_program)

    check = add("check", help=say("run one training step, and report"))
    _add_gpus(check)
    _add_judging(check, fail_on="warning")
    words = say("try fixes by running the step again: where that is harmless (auto), everywhere, or nowhere")
    check.add_argument("--verify", choices=commands.VERIFY, help=words)
    check.add_argument("--baseline", metavar="FILE", type=_file_to_read, help=say("a saved trace: only what is new fails"))
    _add_subject(check)
    check.set_defaults(command=commands.check_step)

    plan = add("plan", help=say("predict the memory of a step on GPUs that are not here"))
    _add_gpus(plan, default=1)
    plan.add_argument("--placement", default="as is", help=say('"as is", "data parallel" or "auto"'))
    plan.add_argument("--loop", choices=("step", "plain", "trainer"), help=say("what is around the step, see docs/plan.md"))
    plan.add_argument("--accumulate", metavar="N", type=int, default=1, help=say("batches for one step of the optimizer"))
    plan.add_argument("--batch", metavar="N", type=int, default=1, help=say("texts, for a model by its name"))
    plan.add_argument("--length", metavar="N", type=int, default=2048, help=say("tokens of each text, for a model by its name"))
    plan.add_argument("--save", metavar="FILE", type=_file_to_write, help=say("keep the plan, for `show` and `html`"))
    plan.add_argument(
        "--html",
        metavar="FILE",
        type=_file_to_write,
        help=say("write a page with the changes, the largest batch and other cards"),
    )
    words = say("plan LoRA and inference beside the step, on every card that is known: printed, and in the page")
    plan.add_argument("--cards", action="store_true", help=words)
    plan.add_argument("--markdown", action="store_true", help=say("print the plan as Markdown"))
    _add_subject(plan)
    plan.set_defaults(command=commands.plan_step)

    diagnose = add("diagnose", help=say("say what is wrong with a job of many ranks, also one that hangs or is over"))
    words = say("folders of ranks, their files, or saved jobs; without one, the job of this user that has started last")
    diagnose.add_argument("source", metavar="FOLDER", nargs="*", type=_absolute_path, help=words)
    words = say("seconds in one collective after which a rank is said to hang (default: {value})", value=5)
    diagnose.add_argument("--patience", metavar="SECONDS", type=float, default=5.0, help=words)
    diagnose.add_argument("--save", metavar="FILE", type=_file_to_write, help=say("keep the job, for `show` and `html`"))
    diagnose.add_argument("--html", metavar="FILE", type=_file_to_write, help=say("the report as one page"))
    diagnose.set_defaults(command=commands.diagnose_ranks)

    show = add("show", help=say("print a saved record"))
    show.add_argument("file", metavar="FILE", type=_absolute_path)
    show.add_argument("--format", choices=commands.FORMATS, default="text", help=say("for a trace: what other programs read"))
    show.set_defaults(command=commands.show_record)

    html = add("html", help=say("turn a saved record into one page"))
    html.add_argument("file", metavar="FILE", type=_absolute_path)
    html.add_argument("out", metavar="OUT", type=_file_to_write)
    html.set_defaults(command=commands.write_page)

    compare = add("compare", help=say("what changed from one saved trace to another"))
    compare.add_argument("before", metavar="BEFORE", type=_absolute_path)
    compare.add_argument("after", metavar="AFTER", type=_absolute_path)
    compare.set_defaults(command=commands.compare_records)

    fix = add("fix", help=say("write the edits of a saved trace into your files")).add_subparsers(
        required=True, metavar="ACTION"
    )
    apply = fix.add_parser("apply", help=say("the first edit of each finding, with a backup of each file"))
    apply.add_argument(
        "file", metavar="FILE", type=_absolute_path, help=say("what `run --save FILE` or `check --save FILE` has written")
    )
    apply.add_argument("--kind", metavar="KIND", help=say("only findings of this kind, such as wrong-device"))
    apply.add_argument("--yes", action="store_true", help=say("write without the question"))
    apply.set_defaults(command=commands.apply_fixes)
    return parser


def _absolute_path(text: str) -> pathlib.Path:
    """Absolute, because a script may go elsewhere before its report is written."""
    return pathlib.Path(text).absolute()


def _file_to_write(text: str) -> pathlib.Path:
    """One that can be written, as far as can be told before the program has run."""
    path = _absolute_path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(say("{path} is a folder, not a file to write", path=path))
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(say("there is no folder {folder} to write a file in", folder=path.parent))
    return path


def _file_to_read(text: str) -> pathlib.Path:
    path = _absolute_path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(say("there is no file {path}", path=path))
    return path


def _number_of_gpus(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(say("{given} is no number of GPUs, which begins at 1", given=repr(text)))
    return int(text)


def _add_subject(parser: argparse.ArgumentParser) -> None:
    words = say("a function that returns (model, batch), or a dict of the arguments of devwidget.trace; file.py:function too")
    parser.add_argument("subject", metavar="MODULE:FUNCTION", help=words)


def _add_gpus(parser: argparse.ArgumentParser, default: int = 0) -> None:
    parser.add_argument("--gpus", metavar="N", type=_number_of_gpus, default=default, help=say("how many virtual GPUs"))
    of_each = parser.add_mutually_exclusive_group()
    of_each.add_argument("--memory", metavar="SIZE", help=say("of each GPU, such as 16GiB"))
    of_each.add_argument("--card", metavar="NAME", help=say("the kind of card that each is, such as A100-80GB"))


def _add_judging(parser: argparse.ArgumentParser, fail_on: str | None = None) -> None:
    parser.add_argument("--allow", metavar="HOP", action="append", default=[], help=say('a hop that is meant: "cuda:0 -> cpu"'))
    least = say("the least severity that makes the exit status 1")
    if fail_on:
        least = say("{option} (default: {value})", option=least, value=fail_on)
    parser.add_argument("--fail-on", choices=SEVERITIES, default=fail_on, help=least)
    for name, words in commands.FILES.items():
        parser.add_argument(f"--{name}", dest=name, metavar="FILE", type=_file_to_write, help=said(words))
