"""split-tied-weights: two modules should share one parameter, but moving them broke that.

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
    for crossing in trace.crossings:
        inside = crossing.phase == "forward" and crossing.module is not None and crossing.number < fault.number
        if inside and crossing.target == fault.target and crossing.site == fault.site:
            return True
    return False


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
        fixes=_list_fixes(fault, held, stray),
    )


def _make_finding(fault: Fault, stray: Operand, held: Held) -> Found:
    others = in_row(f"`{other}`" for other in held.shared)
    facts = {"path": path_of(stray), "others": others, "device": stray.device}
    return Found(
        fault,
        Message("`{path}` is on {device}, because it is the same tensor as {others}", **facts),
        birth=stray.birth,
        fixes=_list_fixes(fault, held, stray),
    )


def _move_to_them(draft: Draft, statement: ast.stmt, fault: Fault, stray: Operand) -> None:
    """`self.head(h.to('cuda:1'))` moves the activations to the device of the shared weight."""
    for node in draft.code.parts(statement):
        if _is_text(node, str(fault.target)):
            draft.replace(node, repr(str(stray.device)))


def _list_fixes(fault: Fault, held: Held, stray: Operand) -> Iterator[Fix | None]:
    words = Message("keep the tied modules on the same device, and move the activations between them")
    if held.left_behind == "":
        yield mended(fault.site, words, _move_to_them, fault, stray)
    model, target = fault.model_name or "model", str(fault.target)
    other = held.shared[0].rpartition(".")[0]
    code = f"{model}.get_submodule({other!r}).to({target!r})  # that is {model}.{other}.to({target!r})"
    yield mended(stray.birth, words, _together, stray, held, target, instead=code)
    yield Fix(Message("untie them: use two independent parameters"), confidence="choice")


def _together(draft: Draft, statement: ast.stmt, stray: Operand, held: Held, target: str) -> None:
    """Move both tied modules to one device; activations go there and come back."""
    away = str(stray.device)
    wrong = [part for part in draft.code.parts(statement) if _is_text(part, away)]
    if len(wrong) != 1:
        return
    _move_activations(draft, {path_of(stray), *held.shared}, away, target)
    if isinstance(statement, ast.Assign) and ".weight" in ast.unparse(statement.targets[0]):
        for part in ast.walk(statement.value):
            if isinstance(part, ast.Attribute) and ast.unparse(part).endswith(held.shared[0]):
                draft.replace(statement.value, draft.code.text(part))
                return
    draft.replace(wrong[0], repr(target))


def _move_activations(draft: Draft, parameters: set[str], away: str, target: str) -> None:
    """`self.head(h.to('cuda:1'))` becomes `self.head(h.to('cuda:0')).to('cuda:1')` for the modules of the parameters."""
    modules = {path.rpartition(".")[0].rpartition(".")[2] for path in parameters}
    for node in ast.walk(draft.code.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) as called) if name in modules and is_self_attribute(called, name):
                device = _find_text(node.args, away)
                if device is not None:
                    draft.replace(device, repr(target))
                    draft.append(node, f".to({away!r})")


def _find_text(nodes: list[ast.expr], text: str) -> ast.AST | None:
    for node in nodes:
        for part in ast.walk(node):
            if _is_text(part, text):
                return part
    return None


def _is_text(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
