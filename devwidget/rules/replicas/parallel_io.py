"""parallel-io: what enters or leaves DataParallel cannot be split or joined as intended.

Why: every tensor is cut along its first axis, one piece for each GPU, and the outputs are joined along it.
Bad: a `forward` that returns a scalar loss, or an object of a class; a hidden state of shape [layers, batch, width]; an object
with tensors, or a list with the lengths of the rows, which every replica gets whole.
Good: `loss = model(x, y).mean()`; a hidden state made inside `forward`, or with the batch first; tensors, or dicts of them.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import targets_of
from devwidget.records.trace import Fault, Trace
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "parallel-io",
    "error",
    needs=("replicas",),
    why=Message("DataParallel cuts every tensor along one axis, a piece for each GPU, and joins the outputs along it"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each input or output that does not fit the wrapper."""
    for fault in trace.faults:
        if fault.what == "io":
            yield _make_finding(fault)


def _make_finding(fault: Fault) -> Found:
    told = fault.details
    birth = fault.birth or next((operand.birth for operand in fault.operands if operand.birth is not None), None)
    return Found(
        fault,
        _headline(fault),
        birth=birth,
        fixes=_list_fixes(fault, birth),
        notes=_notes(fault),
        cause=f"{told.problem} {told.name}" if told.name else "",
        explains=told.explains,
    )


def _notes(fault: Fault) -> Iterator[Message]:
    if fault.error and fault.details.problem != "output":
        yield Message("the replica failed with {error}", error=fault.error)
    if fault.details.problem == "whole":
        yield Message("no edit is written: the line that passes it and what `forward` does with it have to change together")


def _headline(fault: Fault) -> Message:
    told = fault.details
    match told.problem:
        case "scalar":
            return Message(
                "`{owner}.forward` returns a scalar, and {replicas} of them are gathered into a vector",
                owner=told.owner,
                replicas=told.replicas,
            )
        case "axis":
            return Message(
                "an input of shape {shape} is cut along axis {dim}, where the batch has length {batch}",
                shape=list(fault.operands[0].shape) if fault.operands else [],
                dim=told.dim,
                batch=told.batch,
            )
        case "whole":
            return Message(
                "`{name}` ({owner}) has {samples} entries, and each of the {replicas} replicas is given all of them",
                name=told.name,
                owner=told.owner,
                samples=told.samples,
                replicas=told.replicas,
            )
        case "output":
            return Message(
                "`{owner}.forward` returns `{name}`, which cannot be joined from the parts of the replicas",
                owner=told.owner,
                name=told.name,
            )
    return Message(
        "{samples} samples cannot feed {replicas} replicas, and the values that are no tensors go to all",
        samples=told.samples,
        replicas=told.replicas,
    )


def _list_fixes(fault: Fault, birth: Site | None) -> Iterator[Fix | None]:
    if fault.details.problem == "scalar":
        yield _reduced(fault)
        yield Fix(Message("reduce the gathered losses before backward"), "loss = loss.mean()", "sure")
        yield Fix(Message("return one value for each sample, or loss.unsqueeze(0)"), "", "choice")
    elif fault.details.problem == "axis":
        yield _batch_first(fault, birth)
        yield Fix(Message("make the state inside forward, from the replica's own share of the batch"), "", "likely")
        yield Fix(Message("pass it with the batch first and transpose(0, 1) it inside forward"), "", "choice")
    elif fault.details.problem == "whole":
        name = fault.details.name
        if fault.operands:
            yield Fix(
                Message("pass its tensors to the model as arguments of their own, or in a dict: those are cut"), "", "likely"
            )
        else:
            yield Fix(Message("pass it as a tensor, which is cut with the batch"), f"{name} = torch.tensor({name})", "likely")
    elif fault.details.problem == "output":
        fields = ", ".join(f"{field!r}: ..." for field in fault.details.fields)
        yield Fix(
            Message("return tensors, or a tuple, a list or a dict of them"), f"return {{{fields}}}" if fields else "", "likely"
        )
    else:
        words = Message("use no more GPUs than there are samples")
        yield mended(fault.birth, words, lambda draft, statement: _fewer(draft, statement, fault.details.samples), "likely")
        yield Fix(
            Message("use batches of at least as many samples as there are GPUs, or drop_last=True in the loader"), "", "likely"
        )


def _fewer(draft: Draft, statement: ast.stmt, samples: int) -> None:
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("DataParallel"):
            draft.keyword(node, "device_ids", f"list(range({samples}))")


def _batch_first(fault: Fault, birth: Site | None) -> Fix | None:
    """The line that makes the input puts the batch first, and `forward` puts it back."""
    made, used = code_at(birth), code_at(fault.site, fault.expression)
    shape = fault.operands[0].shape if fault.operands else ()
    batch = fault.details.batch
    if made is None or used is None or made[0].file != used[0].file or batch not in shape:
        return None
    axis, (code, statement) = shape.index(batch), made
    function, value = code.scope(used[1]), getattr(statement, "value", None)
    if not isinstance(function, ast.FunctionDef) or value is None or len(targets_of(statement)) != 1:
        return None
    name = _argument(code, function, used[1], shape, targets_of(statement)[0])
    if not name:
        return None
    draft = Draft(code)
    draft.append(value, f".transpose(0, {axis}).contiguous()")
    draft.insert_above(used[1], f"{name} = {name}.transpose(0, {axis}).contiguous()")
    return fix(Message("pass it with the batch first, and put it back inside forward"), draft, "likely")


def _argument(code: Code, function: ast.FunctionDef, statement: ast.stmt, shape: tuple[int, ...], target: ast.expr) -> str:
    """The parameter that the input is: the one of its name, else the only one that the line passes on after the first."""
    given = [a.arg for a in function.args.args if a.arg != "self"]
    used = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in given]
    same = [name for name in used if name == ast.unparse(target)]
    return (same or used[1:] or [""])[0]


def _reduced(fault: Fault) -> Fix | None:
    """The mean of the gathered numbers, where a function of the same file hands them on or a line goes backward."""
    words = Message("reduce the gathered losses before backward")
    handed_on = mended(fault.site, words, lambda draft, _: _reduce_handed_on(draft), "sure")
    return handed_on or mended(fault.details.backward, words, _reduce_backward, "sure")


def _reduce_handed_on(draft: Draft) -> None:
    """`loss_fn=lambda loss, _: loss` becomes `loss_fn=lambda loss, _: loss.mean()`, and `loss.backward()` takes the mean."""
    for node in ast.walk(draft.code.tree):
        if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Name) and _is_loss_function(draft.code, node):
            draft.append(node.body, ".mean()")
    _reduce_backward(draft, draft.code.tree)


def _reduce_backward(draft: Draft, where: ast.AST) -> None:
    for node in ast.walk(where):
        method = node.func if isinstance(node, ast.Call) and not node.args else None
        if isinstance(method, ast.Attribute) and method.attr == "backward" and isinstance(method.value, ast.Name):
            draft.append(method.value, ".mean()")


def _is_loss_function(code: Code, node: ast.Lambda) -> bool:
    """Whether a lambda speaks of a loss or is called one."""
    return "loss" in ast.unparse(node) or "loss" in ast.unparse(code.parents[node]).partition("lambda")[0]
