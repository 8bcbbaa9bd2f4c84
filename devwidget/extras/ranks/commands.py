"""`python -m devwidget diagnose`."""

from __future__ import annotations

from argparse import Namespace

from devwidget.cli.commands import FINE, FOUND, refuse_unwritable
from devwidget.cli.options import CommandLine, absolute_path, file_to_write
from devwidget.language.speaking import say
from devwidget.records.schema.message import Message


def add_commands(line: CommandLine) -> None:
    """Add `diagnose`."""
    run = "torchrun --nproc-per-node 4 -m devwidget run train.py"
    line.examples.append((run, Message("each rank answers devwidget.ranks() instead of being watched")))
    diagnose_job = "python -m devwidget diagnose /shared/job"
    line.examples.append((diagnose_job, Message("a diagnosis of the ranks of a job in ten lines")))
    diagnose = line.add("diagnose", help=say("report what is wrong with a job of many ranks, even if it hangs or has ended"))
    words = say("folders of ranks, their files, or saved jobs; default: your most recent job")
    diagnose.add_argument("source", metavar="FOLDER", nargs="*", type=absolute_path, help=words)
    words = say("report a rank as hung after this time in one collective (default: {value})", value=5)
    diagnose.add_argument("--patience", metavar="SECONDS", type=float, default=5.0, help=words)
    diagnose.add_argument("--save", metavar="FILE", type=file_to_write, help=say("save the job for `show` and `html`"))
    diagnose.add_argument("--html", metavar="FILE", type=file_to_write, help=say("write the report as one HTML page"))
    diagnose.set_defaults(command=diagnose_ranks)


def diagnose_ranks(options: Namespace) -> int:
    """Print a diagnosis of the ranks of a job, which may hang or have ended."""
    from devwidget.extras.ranks.api import ranks
    from devwidget.extras.ranks.words.cluster import diagnosis_text, is_well

    cluster = ranks(options.source or None, patience=options.patience)
    print(diagnosis_text(cluster))
    with refuse_unwritable():
        if options.save is not None:
            cluster.save(options.save)
        if options.html is not None:
            cluster.to_html(options.html)
    return FINE if is_well(cluster) else FOUND
