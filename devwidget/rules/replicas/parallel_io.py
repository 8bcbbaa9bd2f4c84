"""parallel-io: inputs or outputs of `DataParallel` cannot be split or joined as intended.

Why: every tensor is split along its first dimension, one piece per GPU, and outputs are joined along it.
Bad: a `forward` that returns a scalar loss; a hidden state of shape `[layers, batch, width]`.
Good: `loss = model(x, y).mean()`; a hidden state created inside `forward`.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.fault_details import NotCut, ScalarOutputs, TooFewSamples, WrongAxis
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import name_of_called, targets_of
from devwidget.records.trace import Fault, Trace
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "parallel-io",
    "error",
    needs=("replicas",),
    why=Message(
        "DataParallel splits every tensor along one dimension, one chunk per GPU, and concatenates the outputs along it"
    ),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each input or output that does not fit the wrapper."""
    for fault in trace.faults:
        if fault.what == "io":
            yield _make_finding(fault, fault.birth or _first_birth(fault))


def _first_birth(fault: Fault) -> Site | None:
    for operand in fault.operands:
        if operand.birth is not None:
            return operand.birth
    return None


def _make_finding(fault: Fault, birth: Site | None) -> Found:
    notes = [Message("the replica failed with {error}", error=fault.error)] if fault.error else []
    match fault.detail:
        case ScalarOutputs(owner, replicas):
            words = Message(
                "`{owner}.forward` returns a scalar, and the scalars of {replicas} replicas are gathered into a vector",
                owner=owner,
                replicas=replicas,
            )
            return Found(fault, words, birth=birth, fixes=_reduced(fault, fault.detail.backward), notes=notes)
        case WrongAxis(batch, dim):
            words = Message(
                "an input of shape {shape} is split along dimension {dim}, where the batch has size {batch}",
                shape=list(fault.operands[0].shape) if fault.operands else [],
                dim=dim,
                batch=batch,
            )
            return Found(fault, words, birth=birth, fixes=_with_batch_first(fault, birth, batch), notes=notes)
        case NotCut(owner, name, samples, replicas, explains):
            words = Message(
                "`{name}` ({owner}) has {samples} entries, and each of the {replicas} replicas gets all of them",
                name=name,
                owner=owner,
                samples=samples,
                replicas=replicas,
            )
            notes.append(_NO_EDIT)
            cause = f"whole {name}"
            return Found(fault, words, birth=birth, fixes=_cut_it(fault, name), notes=notes, cause=cause, explains=explains)
        case TooFewSamples(samples, replicas):
            words = Message(
                "a batch of {samples} cannot be split over {replicas} replicas; non-tensor arguments are passed to all of them",
                samples=samples,
                replicas=replicas,
            )
            return Found(fault, words, birth=birth, fixes=_fewer_replicas(fault, samples), notes=notes)
    raise TypeError(f"no input or output of a wrapper: {fault.detail}")


_NO_EDIT = Message("no edit: the line that passes it and its uses in `forward` must change together")


def _reduced(fault: Fault, backward: Site | None) -> Iterator[Fix | None]:
    """Take the mean of the gathered losses, where a function of the file returns them or a line calls backward."""
    words = Message("reduce the gathered losses before backward")
    handed_on = mended(fault.site, words, lambda draft, _: _reduce_handed_on(draft), "sure")
    yield handed_on or mended(backward, words, _reduce_backward, "sure")
    yield Fix(words, "loss = loss.mean()", "sure")
    yield Fix(Message("return one value per sample, or loss.unsqueeze(0)"), "", "choice")


def _with_batch_first(fault: Fault, birth: Site | None, batch: int) -> Iterator[Fix | None]:
    yield _batch_first(fault, birth, batch)
    yield Fix(Message("create the state in forward, with the batch size of the replica's chunk"), "", "likely")
    yield Fix(Message("pass it with the batch first, and call transpose(0, 1) on it in forward"), "", "choice")


def _cut_it(fault: Fault, name: str) -> Iterator[Fix]:
    if fault.operands:
        yield Fix(Message("pass its tensors to the model as separate arguments or in a dict, which are split"), "", "likely")
    else:
        yield Fix(Message("pass it as a tensor, which is split with the batch"), f"{name} = torch.tensor({name})", "likely")


def _fewer_replicas(fault: Fault, samples: int) -> Iterator[Fix | None]:
    words = Message("use no more GPUs than there are samples")
    yield mended(fault.birth, words, lambda draft, statement: _fewer(draft, statement, samples), "likely")
    yield Fix(Message("use a batch size of at least the number of GPUs, or drop_last=True in the loader"), "", "likely")


def _fewer(draft: Draft, statement: ast.stmt, samples: int) -> None:
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and name_of_called(node).endswith("DataParallel"):
            draft.keyword(node, "device_ids", f"list(range({samples}))")


def _batch_first(fault: Fault, birth: Site | None, batch: int) -> Fix | None:
    """The line that creates the input puts the batch first, and `forward` transposes it back."""
    made, used = code_at(birth), code_at(fault.site, fault.expression)
    shape = fault.operands[0].shape if fault.operands else ()
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
    return fix(Message("pass it with the batch first, and transpose it back in forward"), draft, "likely")


def _argument(code: Code, function: ast.FunctionDef, statement: ast.stmt, shape: tuple[int, ...], target: ast.expr) -> str:
    """The parameter of `forward` that holds the input: the one with its name, else the first one after the module's input."""
    given = [a.arg for a in function.args.args if a.arg != "self"]
    used = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in given]
    same = [name for name in used if name == ast.unparse(target)]
    return (same or used[1:] or [""])[0]


def _reduce_handed_on(draft: Draft) -> None:
    """`loss_fn=lambda loss, _: loss` becomes `loss_fn=lambda loss, _: loss.mean()`, and `loss.backward()` takes the mean."""
    for node in ast.walk(draft.code.tree):
        if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Name) and _is_loss_function(draft.code, node):
            draft.append(node.body, ".mean()")
    _reduce_backward(draft, draft.code.tree)


def _reduce_backward(draft: Draft, where: ast.AST) -> None:
    for node in ast.walk(where):
        match node:
            case ast.Call(func=ast.Attribute(attr="backward", value=ast.Name() as loss), args=[]):
                draft.append(loss, ".mean()")


def _is_loss_function(code: Code, node: ast.Lambda) -> bool:
    """Whether the source of a lambda, or the name it is assigned to, contains `loss`."""
    return "loss" in ast.unparse(node) or "loss" in ast.unparse(code.parents[node]).partition("lambda")[0]
