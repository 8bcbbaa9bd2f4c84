"""Codes of records that users read as words: parts of a step, causes of hops, kinds of tensors, severities, states
of ranks, what is compared among them."""

from __future__ import annotations

from devwidget.language.speaking import said
from devwidget.records.schema.message import Message

CODES: dict[str, Message] = {
    str(each): each
    for each in (
        *(Message("error"), Message("warning"), Message("info")),
        *(Message("build"), Message("forward"), Message("loss"), Message("backward"), Message("optimizer"), Message("other")),
        *(Message("explicit"), Message("scatter"), Message("replicate"), Message("gather"), Message("reduce")),
        *(Message("healed"), Message("hook")),
        *(Message("parameter"), Message("buffer"), Message("attribute")),
        *(Message("answered"), Message("hung"), Message("busy"), Message("stopped"), Message("stale"), Message("dead")),
        Message("unknown"),
        *(Message("tensor parallel"), Message("device map"), Message("as is"), Message("data parallel"), Message("auto")),
        *(Message("input gradient"), Message("weight gradient"), Message("forward and backward")),
        *(Message("parameters and buffers"), Message("allocated"), Message("peak")),
    )
}
"""Code -> its word."""


def code_word(code: str) -> str:
    """A code in the language of reports; a name stays as it is."""
    return said(CODES.get(code, code))
