"""split-tied-weights: two modules should share one parameter, and placement broke that.

Why: a shared parameter is one tensor; moving one of its modules moves it away from the other.
Bad: `model.embed.to('cuda:0')` and `model.head.to('cuda:1')` where `head.weight is embed.weight`.
Good: both modules on one device; move the activations instead.
Source: https://huggingface.co/docs/accelerate/concept_guides/big_model_inference (tied parameters must share a device).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message, in_row
from devwidget.records.syntax import is_self_attribute
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import path_of, strays_in


@rule(
    "split-tied-weights",
    "error",
    needs=("forward",),
    why=Message("a shared parameter is one tensor on one device"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each misplaced parameter that several modules share."""
    for fault, _ in strays_in(trace, "operands"):
        for stray in fault.operands:
            held = stray.held
            split = held is not None and (held.left_behind != "" or _is_carried(trace, fault))
            if held is not None and held.shared and split and stray.device.is_accelerator:
                yield _make_finding(fault, stray, held)
                break
    for fault, stray in strays_in(trace, "tie"):
        if stray.held is not None:
            yield _copied(fault, stray, stray.held)


def _is_carried(trace: Trace, fault: Fault) -> bool:
    """Whether `forward` moves its activations to the GPU that the module was on before it was tied."""
    inside = (c for c in trace.crossings if c.phase == "forward" and c.module is not None and c.number < fault.number)
    return any(c.target == fault.target and c.site == fault.site for c in inside)


def _copied(fault: Fault, stray: Operand, held: Held) -> Found:
    return Found(
        fault,
        Message(
            "`{expression}` on {device} was copied from `{other}` on {target}; the two are trained separately",
            expression=stray.expression,
            device=stray.device,
            other=held.shared[0],
            target=fault.target,
        ),
        why=Message("two tensors with equal values are not tied: the optimizer updates each one separately"),
        birth=stray.birth,
        fixes=(_brought(fault, stray) if held.left_behind == "" else None, *_list_fixes(fault, held, stray)),
    )


def _make_finding(fault: Fault, stray: Operand, held: Held) -> Found:
    others = in_row(f"`{other}`" for other in held.shared)
    facts = {"path": path_of(stray), "others": others, "device": stray.device}
    return Found(
        fault,
        Message("`{path}` is on {device}, because it is the same tensor as {others}", **facts),
        birth=stray.birth,
        fixes=(_brought(fault, stray) if held.left_behind == "" else None, *_list_fixes(fault, held, stray)),
    )


def _brought(fault: Fault, stray: Operand) -> Fix | None:
    """`self.head(h.to('cuda:1'))` moves the activations to the device of the shared weight."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        for node in draft.code.parts(statement):
            if isinstance(node, ast.Constant) and node.value == str(fault.target):
                draft.replace(node, repr(str(stray.device)))

    return mended(fault.site, Message("keep the tied modules together, and move the activations to them"), change)


def _list_fixes(fault: Fault, held: Held, stray: Operand) -> Iterator[Fix | None]:
    model, target = fault.model_name or "model", str(fault.target)
    other = held.shared[0].rpartition(".")[0]
    words = Message("keep the tied modules on the same device, and move the activations between them")
    yield mended(stray.birth, words, lambda draft, statement: _together(draft, statement, stray, held, target))
    yield Fix(words, f"{model}.get_submodule({other!r}).to({target!r})  # that is {model}.{other}.to({target!r})", "likely")
    yield Fix(Message("untie them: use two independent parameters"), "", "choice")


def _together(draft: Draft, statement: ast.stmt, stray: Operand, held: Held, target: str) -> None:
    """Move both tied modules to one device; activations go there and come back."""
    wrong = [n for n in draft.code.parts(statement) if isinstance(n, ast.Constant) and n.value == str(stray.device)]
    if len(wrong) != 1:
        return
    if held.module is None:
        moved = held.name
    else:
        moved = f"{held.module}.{held.name}"
    names = {part.rpartition(".")[0].rpartition(".")[2] for part in (moved, *held.shared)}
    for node in ast.walk(draft.code.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_self_attribute(node.func, node.func.attr):
            away = [c for a in node.args for c in ast.walk(a) if isinstance(c, ast.Constant) and c.value == str(stray.device)]
            if node.func.attr in names and away:
                draft.replace(away[0], repr(target))
                draft.append(node, f".to({str(stray.device)!r})")
    if isinstance(statement, ast.Assign) and ".weight" in ast.unparse(statement.targets[0]):
        shared = held.shared[0]
        inner = [n for n in ast.walk(statement.value) if isinstance(n, ast.Attribute) and ast.unparse(n).endswith(shared)]
        if inner:
            draft.replace(statement.value, draft.code.text(inner[0]))
            return
    draft.replace(wrong[0], repr(target))
