"""state-dict-prefix: only one of a checkpoint and the model has the prefix `module.` in its keys.

Why: `DataParallel` registers the model as its child `module`, so its keys begin with `module.`.
Bad: `plain.load_state_dict(parallel.state_dict(), strict=False)`, which loads nothing and raises nothing.
Good: `plain.load_state_dict(parallel.module.state_dict())`.
Source: torch.nn.modules.utils.consume_prefix_in_state_dict_if_present.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.fault_details import WrongPrefix
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
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
            yield _make_finding(fault, fault.detail)


def _make_finding(fault: Fault, wrong: WrongPrefix) -> Found:
    return Found(
        fault,
        Message(
            "{count} of {total} checkpoint keys have the wrong prefix for `{owner}`: `{key}` should be `{right}`",
            owner=wrong.owner,
            right=wrong.right,
            key=wrong.key,
            count=wrong.count,
            total=wrong.total,
        ),
        birth=fault.birth,
        fixes=_list_fixes(fault, wrong),
        operands=(),
    )


def _list_fixes(fault: Fault, wrong: WrongPrefix) -> Iterator[Fix | None]:
    name = fault.expression or "checkpoint"
    if len(wrong.key) > len(wrong.right):
        off = _taken_off(wrong)
        yield mended(fault.site, Message("remove the prefix"), lambda d, s: _without_prefix(d, s, off), "sure")
        code = f"{name} = {{{off}: value for key, value in {name}.items()}}"
        yield Fix(Message("remove the prefix"), code, "sure")
        if wrong.key.startswith("module."):
            yield mended(fault.birth, Message("save the wrapped model"), _saved_inside, "choice")
    else:
        yield mended(fault.site, Message("load into the wrapped model"), _loaded_inside, "sure")
        yield Fix(Message("load into the wrapped model"), f"model.module.load_state_dict({name})", "choice")


def _calls(draft: Draft, statement: ast.stmt, method: str) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield node, node.func


def _taken_off(wrong: WrongPrefix) -> str:
    """The key without the wrapper's name, at its start or inside it where only a part of the model is wrapped."""
    before, found, after = wrong.key.partition("module.")
    if before and found and before + after == wrong.right:
        return f"key.replace({before + found!r}, {before!r})"
    return "key.removeprefix('module.')"


def _without_prefix(draft: Draft, statement: ast.stmt, off: str) -> None:
    for call, _ in _calls(draft, statement, "load_state_dict"):
        if call.args:
            given = draft.code.text(call.args[0])
            draft.replace(call.args[0], f"{{{off}: value for key, value in {given}.items()}}")


def _loaded_inside(draft: Draft, statement: ast.stmt) -> None:
    for _, method in _calls(draft, statement, "load_state_dict"):
        draft.append(method.value, ".module")


def _saved_inside(draft: Draft, statement: ast.stmt) -> None:
    for _, method in _calls(draft, statement, "state_dict"):
        draft.append(method.value, ".module")
