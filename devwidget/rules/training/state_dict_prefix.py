"""state-dict-prefix: only one of a checkpoint and the model has the prefix `module.` in its keys.

Why: `DataParallel` registers the model as its child `module`, so its keys begin with `module.`.
Bad: `plain.load_state_dict(parallel.state_dict(), strict=False)`, which loads nothing and raises nothing.
Good: `plain.load_state_dict(parallel.module.state_dict())`.
Source: torch.nn.modules.utils.consume_prefix_in_state_dict_if_present.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from devwidget.records.fault_details import WrongPrefix
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import calls_named
from devwidget.records.trace import Fault, Trace
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "state-dict-prefix",
    "error",
    needs=("operations",),
    why=Message(
        "DataParallel registers the model as its child `module`; with strict=False mismatched keys are silently skipped"
    ),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each checkpoint whose keys differ from the module's by a prefix."""
    for fault in trace.faults:
        if isinstance(fault.detail, WrongPrefix):
            yield Found(
                fault,
                Message(
                    "{count} of {total} checkpoint keys have the wrong prefix for `{owner}`: `{key}` should be `{right}`",
                    **dataclasses.asdict(fault.detail),
                ),
                birth=fault.birth,
                fixes=_list_fixes(fault, fault.detail),
                operands=(),
            )


def _list_fixes(fault: Fault, wrong: WrongPrefix) -> Iterator[Fix | None]:
    name = fault.expression or "checkpoint"
    if len(wrong.key) > len(wrong.right):
        off = _taken_off(wrong)
        code = f"{name} = {{{off}: value for key, value in {name}.items()}}"
        yield mended(fault.site, Message("remove the prefix"), _without_prefix, off, instead=code)
        if wrong.key.startswith("module."):
            yield mended(fault.birth, Message("save the wrapped model"), _use_inside, "state_dict", confidence="choice")
    else:
        words, code = Message("load into the wrapped model"), f"model.module.load_state_dict({name})"
        yield mended(fault.site, words, _use_inside, "load_state_dict", instead=code)


def _taken_off(wrong: WrongPrefix) -> str:
    """The key without the wrapper's name, at its start or inside it where only a part of the model is wrapped."""
    before, found, after = wrong.key.partition("module.")
    if before and found and before + after == wrong.right:
        return f"key.replace({before + found!r}, {before!r})"
    return "key.removeprefix('module.')"


def _without_prefix(draft: Draft, statement: ast.stmt, off: str) -> None:
    for call in calls_named(draft.code.parts(statement), "load_state_dict"):
        if call.args:
            given = draft.code.text(call.args[0])
            draft.replace(call.args[0], f"{{{off}: value for key, value in {given}.items()}}")


def _use_inside(draft: Draft, statement: ast.stmt, method: str) -> None:
    """`model.state_dict()` becomes `model.module.state_dict()`."""
    for call in calls_named(draft.code.parts(statement), method):
        if isinstance(call.func, ast.Attribute):
            draft.append(call.func.value, ".module")
