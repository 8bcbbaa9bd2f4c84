"""`python -m tests.evidence`: print predicted beside measured, write docs/evidence.md and the rows that bands follow from."""

from __future__ import annotations

from pathlib import Path

from tests.evidence import predictions
from tests.evidence.measured import ATTENTION, MIB, NOT_PREDICTED, OUT_OF_MEMORY, ROWS, SOURCES, Row

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"
KEPT = Path(__file__).parents[2] / "devwidget" / "records" / "evidence" / "rows.py"
HEAD = """# How do we know?

Nobody needs a GPU to be held against one: others have published what theirs did, and `make test-gpu` measures where
there is one. This page is written by `python -m tests.evidence`, and `tests/evidence` fails if a prediction leaves the bounds
that are named here.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *attention_table(), *_training(), *segments_table(), *OPEN]) + "\n"


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


def table(letter: str) -> list[str]:
    """The rows of one source."""
    rows = (line(row) for row in ROWS if row.table == letter)
    heads = ["| workload | | measured | predicted | beyond | bound |", "|---|---|---|---|---|---|"]
    return [SOURCES[letter], "", *heads, *rows, ""]


UNITS = {1e6: ("MB", 0), MIB: ("MiB", 0), 1e9: ("GB", 2), 2.0**30: ("GiB", 2)}
"""Scale of a row -> its unit, and the digits that are shown."""


def line(row: Row) -> str:
    """One figure beside its prediction."""
    found = predictions.predicted(row.workload)[row.what] / row.scale
    unit, digits = UNITS[row.scale]
    least, most = f"{row.least:,.{digits}f}", f"{row.most:,.{digits}f}"
    measured = least if least == most else f"{least} to {most}"
    words = f"| {row.workload} | {row.what} | {measured} {unit} | {found:,.{digits}f} {unit} |"
    return f"{words} {beyond(row, found):+.1%} | {row.bound:.0%} |"


def beyond(row: Row, found: float) -> float:
    """How far a prediction lies outside of what was measured, as a share."""
    return (found - max(row.least, min(row.most, found))) / row.most


def kept_row(row: Row) -> str:
    """One figure as devwidget keeps it, in bytes."""
    found = predictions.predicted(row.workload)[row.what]
    sizes = ", ".join(f"{round(size):_}" for size in (row.least * row.scale, row.most * row.scale, found))
    return f'    ("{row.table}", "{row.workload}", "{row.what}",\n     {sizes}, {row.counts}),'


def kept_rows() -> str:
    """All of them, as a file of Python."""
    told = '"""Published figures beside their plans, in bytes; see `Compared`. Written by `python -m tests.evidence`."""'
    head = "from __future__ import annotations\n\nROWS: tuple[tuple[str, str, str, int, int, int, bool], ...] = ("
    return "\n".join([f"{told}\n", "# fmt: off", head, *map(kept_row, ROWS), ")"]) + "\n"


def _training() -> list[str]:
    tables = [text for letter in SOURCES for text in table(letter)]
    refused = [f"- {name}: out of memory, measured and predicted." for name in OUT_OF_MEMORY]
    return ["## Steps and forwards", "", *tables, "What did not fit:", "", *refused, ""]


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
    "## What is not held against anything yet",
    "",
    *(f"- {reason}" for reason in NOT_PREDICTED.values()),
    "- Convolutions, whose workspaces cuDNN chooses on the card.",
    "- Contexts: they are read off published errors (`devwidget/simulator/virtual_machine.py`), not predicted.",
]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    KEPT.write_text(kept_rows(), encoding="utf-8")
    print(page())
