"""Write docs/how-we-know.md from the checker of claims and its sentences: python docs/build_claims.py."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from devwidget.extras.ranks.rules import rank_claims
from devwidget.records.device import CPU, DeviceId
from devwidget.records.finding import Claim
from devwidget.records.site import Site
from devwidget.rules.claim_words import words_of
from devwidget.rules.claims_checker import REQUIRED

PAGE = Path(__file__).resolve().parent / "how-we-know.md"
GPU0, GPU1 = DeviceId("cuda", 0), DeviceId("cuda", 1)
EXAMPLE = Claim(
    "lies", name="self.mask", call="add", by="float", device=CPU, source=CPU, target=GPU0, devices=(CPU, GPU0),
    dtype="float64", wanted="float32", dtypes=("float32", "float64"), owner="Attention", how="attribute",
    others=("embed.weight",), bytes=4096, site=Site("train.py", 12, "x.to('cuda:0')"),
)  # fmt: skip
OTHERWISE = {
    "crossed": {"devices": (GPU0, CPU, GPU1)},
    "empty": {"device": DeviceId("meta")},
    "shared": {"name": "head.weight", "device": GPU1},
    "copied": {"name": "head.weight", "device": GPU1},
    "needed": {"devices": (GPU0,), "target": CPU},
    "promotes": {"wanted": "float64"},
    "filled": {"name": "losses", "device": None, "source": GPU0, "target": CPU},
    "remained": {"target": None},
    "waits": {"name": "loss.item()", "device": GPU0, "count": 300, "total": 100},
    "chained": {"count": 3},
    "compared": {"name": "device == 'cuda'", "by": "device", "call": "cuda:0", "how": "False", "dtype": "device"},
    "early": {"source": GPU0},
    "changed": {"source": GPU0, "target": GPU1, "count": 2, "total": 9},
    "linked": {"source": GPU0, "target": GPU1, "how": "no"},
    "nowhere": {"name": "gpu", "others": ("cuda:0", "cuda:1", "cpu")},
    "lacking": {"call": "inv", "dtype": "float16"},
    "computed": {"name": "style"},
    "prefixed": {"owner": "Net", "name": "head.weight", "others": ("module.head.weight",), "count": 4, "total": 4},
    "kept": {"owner": "Adagrad", "name": "sum"},
    "omitted": {"owner": "Adam", "others": ("head.weight", "head.bias")},
    "wrapped": {"numbers": (2, 3), "devices": (GPU0,)},
    "outside": {"argument": "head.weight", "device": CPU},
    "gathered": {"owner": "Net", "count": 2},
    "cut": {"numbers": (2, 8, 4), "count": 0, "total": 8},
    "starved": {"count": 1, "total": 2},
    "lost": {"name": "calls"},
    "whole": {"name": "lengths", "owner": "list", "count": 8, "total": 2},
    "unjoined": {"name": "Output", "owner": "Net"},
}
"""What reads wrong in the sentence of a kind with the example's fields."""
TEXT = """# How we know

Whatever a finding says of a tensor, a device, a dtype or a line is a *claim*: data with the tensor, the device and the line
in fields, `finding.claims`, which reports write as a sentence in their language. Before it is shown each claim is held
against the trace. What is not borne out is not said: a note is left out, and of a finding whose headline is not, `not
checked` says that. A weaker sentence takes the place of a stronger one, `is on` that of `was made on`. A tensor is called by
a name only if that stands in the line that failed or in the one that made it; else it is `argument weight of linear`, the
operator's own word.

A line that ran before the recording, such as one that built the model, has left no event. Of such a line the source is read,
and must not say otherwise; `explain` has nothing but an exception, and reads the source alone.

| claim | such as | what must have been seen |
|---|---|---|
{rows}

What is told of ranks is held against what each of them answered; nobody is spoken of who was not heard:

| claim | such as | what must have been heard |
|---|---|---|
{of_ranks}

This page is written by `python docs/build_claims.py` from the code that checks.
"""


def page() -> str:
    """The page as it should be."""
    of_ranks = "\n".join(map(_row_of_ranks, sorted(rank_claims.REQUIRED)))
    return TEXT.format(rows="\n".join(map(_row, sorted(REQUIRED))), of_ranks=of_ranks)


def _row_of_ranks(kind: str) -> str:
    claim = Claim(kind, name="default", call="all_reduce", count=7, how="not begun", ranks=(2, 3))
    return f"| {kind} | {rank_claims.words_of(claim)} | {inspect.getdoc(rank_claims.REQUIRED[kind])} |".replace("\n", " ")


def _row(kind: str) -> str:
    claim = dataclasses.replace(EXAMPLE, kind=kind, **OTHERWISE.get(kind, {}))
    return f"| {kind} | {words_of(claim)} | {inspect.getdoc(REQUIRED[kind])} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
