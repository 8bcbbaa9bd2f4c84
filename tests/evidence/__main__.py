"""`python -m tests.evidence`: print predicted beside measured, and write docs/evidence.md."""

from __future__ import annotations

from pathlib import Path

from tests.evidence import predictions
from tests.evidence.measured import ATTENTION, TRAINING

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"
HEAD = """# How do we know?

Nobody needs a GPU to be held against one: others have published what theirs did. This page is written by
`python -m tests.evidence`, and `tests/evidence` fails if a prediction leaves the bounds that are named here.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_attention(), *_training(), *_segments(), *OPEN]) + "\n"


def _attention() -> list[str]:
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


def _training() -> list[str]:
    rows = []
    for workload, spans in TRAINING.items():
        for what, (least, most), predicted in zip(
            ("allocated", "reserved"), spans, predictions.training(workload), strict=True
        ):
            measured = f"{least:,.1f}" if least == most else f"{least:,.1f} to {most:,.1f}"
            off = (predicted - max(least, min(most, predicted))) / most
            rows.append(f"| {workload} | {what} | {measured} | {predicted:,.1f} | {off:+.1%} |")
    return [
        "## A step of training",
        "",
        "Float32, AdamW; the peak of the second step, in MB, as `devwidget.plan(..., card=...)` predicts it.",
        "Bounds: 2 % of what is allocated, 5 % of what is reserved.",
        "Measured: optimum-benchmark's reports with transformers' Trainer, on ROCm and on CUDA, whose reserved figures differ.",
        "",
        "| workload | | measured | predicted | beyond |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _segments() -> list[str]:
    recorded, ours = predictions.replayed()
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
    ]


OPEN = [
    "## What is not held against anything yet",
    "",
    "- Convolutions, whose workspaces cuDNN chooses on the card.",
    "- Models over several GPUs: published figures are of single cards, or of other frameworks.",
    "- Contexts: they are read off published errors (`devwidget/simulator/cards.py`), not predicted.",
]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(page())
