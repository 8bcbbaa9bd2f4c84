"""mistaken-comparison: a device is compared with a string, or with a device without an index, and is never equal to it.

Why: a `torch.device` never equals a string, and `cuda:0` does not equal `cuda`, so the branch never runs.
Bad: `if device == 'cuda':` where `device = torch.device('cuda')`.
Good: `if device.type == 'cuda':`.
Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import DeviceComparison, Trace
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "mistaken-comparison",
    "info",
    needs=("operations",),
    why=Message("a torch.device never equals a string, and `cuda:0` does not equal `cuda`"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each such comparison."""
    for each in trace.comparisons:
        words = Message("compare only the device type")
        yield Found(
            each.site,
            _headline(each),
            notes=(Message("once fixed, the result may change, and the code under this condition may run for the first time"),),
            fixes=(
                mended(each.site, words, _compare_type, each, confidence="choice"),  # the branch that runs may change
                Fix(words, f'{each.subject}.type == "cuda"'),
            ),
        )


def _headline(each: DeviceComparison) -> Message:
    facts = {"expression": each.expression, "gives": each.gives, "subject": each.subject, "value": each.value}
    with_a_text = each.kept == "device" and "torch.device(" not in each.expression
    if with_a_text:
        return Message("`{expression}` is always {gives}: `{subject}` is a torch.device ({value}), not a string", **facts)
    return Message("`{expression}` is always {gives}: `{subject}` is {value}, which includes an index", **facts)


def _compare_type(draft: Draft, statement: ast.stmt, comparison: DeviceComparison) -> None:
    """Compare the type of the device, or the whole name if the other side includes an index."""
    for node in draft.code.alike(statement, comparison.expression):
        for part in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if ast.unparse(part) == comparison.subject:
                draft.replace(part, _shown(comparison, draft.code.text(part)))
            elif isinstance(part, ast.Call):
                draft.replace(part, draft.code.text(part.args[0]))


def _shown(comparison: DeviceComparison, subject: str) -> str:
    if comparison.kept == "text":
        return f'{subject}.split(":")[0]'
    if ":" in comparison.expression:
        return f"str({subject})"
    return f"{subject}.type"
