"""`python -m tests.extras.plan.evidence`: predict all anew, write the rows of the bands, and benchmarks/results/plans.md."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

from devwidget.extras.plan.evidence.compared import Compared
from tests.extras.plan.evidence import predictions
from tests.extras.plan.evidence.measured import (
    ATTENTION,
    GIB,
    MIB,
    NOT_PREDICTED,
    OUT_OF_MEMORY,
    ROWS,
    SOURCES,
    bound_of,
    scale_of,
)

PAGE = Path(__file__).parents[4] / "benchmarks" / "results" / "plans.md"
KEPT = Path(__file__).parents[4] / "devwidget" / "extras" / "plan" / "evidence" / "rows.csv"
HEAD = """# Plans and measured memory

Plans next to figures that others published of their GPUs, and to those of `make test-gpu` on an H100.
`python -m tests.extras.plan.evidence` writes this page, and `tests/extras/plan/evidence` fails if a prediction leaves
its bound.
"""


def page(rows: Sequence[Compared]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *attention_table(), *_training(rows), *segments_table(), *OPEN]) + "\n"


def attention_table() -> list[str]:
    """One head, to the byte."""
    rows = [
        f"| {width} | {length:,} | {measured:,} | {predicted:,} | {predicted - measured:+,} |"
        for (width, length), measured in ATTENTION.items()
        for predicted in [predictions.attention(width, length)]
    ]
    return [
        "## One head of attention",
        "",
        "Batch 8, float32; bytes allocated between forward and backward, both workspaces of cuBLAS included. Bound: exact.",
        "Measured: MAGMA27/assignment2-systems, `attention_benchmark_results.csv`.",
        "",
        "| width | length | measured | predicted | difference |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def table(letter: str, rows: Sequence[Compared]) -> list[str]:
    """The rows of one source."""
    lines = (line(row) for row in rows if row.source == letter)
    heads = ["| workload | | measured | predicted | beyond | bound |", "|---|---|---|---|---|---|"]
    return [SOURCES[letter], "", *heads, *lines, ""]


UNITS = {1e6: ("MB", 0), MIB: ("MiB", 0), 1e9: ("GB", 2), GIB: ("GiB", 2)}
"""Bytes of a unit -> its name, and the digits that are shown."""


def line(row: Compared) -> str:
    """One figure beside its prediction."""
    scale = scale_of(row)
    unit, digits = UNITS[scale]
    least, most, found = (f"{size / scale:,.{digits}f}" for size in (row.least, row.most, row.planned))
    measured = least if least == most else f"{least} to {most}"
    words = f"| {row.workload} | {row.what} | {measured} {unit} | {found} {unit} |"
    return f"{words} {row.off:+.1%} | {bound_of(row):.0%} |"


def predict(row: Compared) -> Compared:
    """The same figure beside what is predicted now."""
    return dataclasses.replace(row, planned=round(predictions.predicted(row.workload)[row.what]))


def kept_rows(rows: Sequence[Compared]) -> str:
    """All of them, as devwidget keeps them."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(field.name for field in dataclasses.fields(Compared))
    table.writerows(map(dataclasses.astuple, rows))
    return file.getvalue()


def _training(rows: Sequence[Compared]) -> list[str]:
    tables = [text for letter in SOURCES for text in table(letter, rows)]
    refused = [f"- {name}: out of memory, measured and predicted." for name in OUT_OF_MEMORY]
    return ["## Steps and forwards", "", *tables, "Out of memory:", "", *refused, ""]


def segments_table() -> list[str]:
    """The recorded requests."""
    recorded, ours = predictions.replayed()
    snapshots = predictions.recorded_segments()
    events = [row for rows in snapshots.values() for row in rows]
    same = sum(count for request, segment, count in events if predictions.segment_for(request) == segment)
    return [
        "## The caching allocator",
        "",
        "The 2,058 requests of a recorded forward of a transformer, given to our allocator. Bound: the same segments.",
        "Measured: kkaitlyn111/cs336-a2-systems, `memory_files/memory_ctx128_forward.pickle`, torch 2.6.",
        "",
        "| | segments | bytes |",
        "|---|---|---|",
        f"| taken by the GPU's allocator | {len(recorded)} | {sum(recorded):,} |",
        f"| taken by ours | {len(ours)} | {sum(ours):,} |",
        "",
        f"In {len(snapshots)} snapshots of the same source {sum(count for *_, count in events):,} segments were taken;"
        f" of the size that ours takes for the same request are {same:,}.",
        "",
    ]


OPEN = [
    "## Not compared yet",
    "",
    *(f"- {reason}" for reason in NOT_PREDICTED.values()),
    "- Convolutions, whose workspaces cuDNN chooses on the card.",
    "- Contexts: they are read off published errors (`devwidget/gpus/virtual_machine.py`), not predicted.",
]


if __name__ == "__main__":
    predicted = list(map(predict, ROWS))
    KEPT.write_text(kept_rows(predicted), encoding="utf-8")
    PAGE.write_text(page(predicted), encoding="utf-8")
