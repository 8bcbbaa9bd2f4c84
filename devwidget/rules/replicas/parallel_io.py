"""parallel-io: inputs or outputs of `DataParallel` cannot be split or joined as intended, or not evenly.

Why: every tensor is split along its first dimension, one piece per GPU, and outputs are joined along it.
Bad: a `forward` that returns a scalar loss or a number; a hidden state of shape `[layers, batch, width]`.
Good: `loss = model(x, y).mean()`; a hidden state created inside `forward`.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from devwidget.records.device import DeviceId
from devwidget.records.fault_details import KeptWhole, NotCut, NotJoined, ScalarOutputs, TooFewSamples, WrongAxis
from devwidget.records.finding import Fix
from devwidget.records.parallel import DataParallelCall, Replica
from devwidget.records.schema.message import Message, in_row
from devwidget.records.site import Site
from devwidget.records.syntax import assigns_self_attribute, is_self_attribute, name_of_called, nodes_in, targets_of
from devwidget.records.trace import Fault, Trace
from devwidget.rules.call_edits import set_device_ids
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found, SiteInModule
from devwidget.rules.registry import rule
from devwidget.rules.wording import some_names


@rule(
    "parallel-io",
    "error",
    needs=("replicas",),
    why=Message(
        "DataParallel splits every tensor along one dimension, one chunk per GPU, and concatenates the outputs along it"
    ),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each input or output that does not fit the wrapper, and hints on GPUs with less work."""
    for fault in trace.faults:
        if fault.what == "io":
            yield _make_finding(fault)
    yield from _find_uneven(trace)


def _make_finding(fault: Fault) -> Found:
    detail = fault.detail
    facts = {name: getattr(detail, name) for name in _FACTS if hasattr(detail, name)}
    birth = fault.birth or next((operand.birth for operand in fault.operands if operand.birth is not None), None)
    notes = [Message("the replica failed with {error}", error=fault.error)] if fault.error else []
    why, cause, explains = "", "", tuple[int, ...]()
    match detail:
        case ScalarOutputs():
            words = Message(
                "`{owner}.forward` returns a scalar, and the scalars of {replicas} replicas are gathered into a vector", **facts
            )
            fixes = _reduced(fault, detail.backward)
        case WrongAxis(batch, _, lost):
            if lost:
                notes.append(Message("{lost} of {batch} samples reach no replica", lost=lost, batch=batch))
            facts["shape"] = list(fault.operands[0].shape) if fault.operands else []
            words = Message(
                "an input of shape {shape} is split along dimension {dim}, where the batch has size {batch}", **facts
            )
            fixes = _with_batch_first(fault, birth, batch)
        case NotCut(_, name):
            words = Message(
                "`{name}` ({owner}) has {samples} entries, and each of the {replicas} replicas gets all of them", **facts
            )
            notes.append(_NO_EDIT)
            fixes, cause, explains = _cut_it(fault, name), f"whole {name}", detail.explains
        case KeptWhole():
            words = Message(
                "`self.{attribute}` is for the whole batch of {samples}, and each of the {replicas} replicas gets all of it",
                **facts,
            )
            fixes = _in_forward(fault, detail)
            why = Message("DataParallel splits the arguments of `forward`, not the attributes of the module")
        case NotJoined():
            words, fixes = _name_unjoined(detail), _joinable(detail)
        case TooFewSamples(samples):
            words = Message(
                "a batch of {samples} cannot be split over {replicas} replicas; non-tensor arguments are passed to all of them",
                **facts,
            )
            fixes = _fewer_replicas(fault, samples)
        case _:
            raise TypeError(f"no input or output of a wrapper: {detail}")
    return Found(fault, words, why=why, birth=birth, fixes=fixes, notes=notes, cause=cause, explains=explains)


_FACTS = ("owner", "name", "attribute", "batch", "dim", "samples", "replicas")
"""Fields of details that headlines name."""


def _name_unjoined(detail: NotJoined) -> Message:
    names = some_names(detail.names)
    if detail.problem == "class":
        return Message(
            "`{owner}.forward` returns {names}, and DataParallel gathers only tensors", owner=detail.owner, names=names
        )
    facts = {"names": names, "problem": detail.problem, "first": detail.first, "other": detail.other}
    return Message("{names} differs in {problem} between replicas: {first} and {other}", **facts)


_STATE_IN_FORWARD = Message("create the state in forward, with the batch size of the replica's chunk")
_TRANSPOSED = Message("pass it with the batch first, and transpose it back in forward")
_NO_EDIT = Message("no edit: the line that passes it and its uses in `forward` must change together")


def _reduced(fault: Fault, backward: Site | None) -> Iterator[Fix | None]:
    """Take the mean of the gathered losses, where a function of the file returns them or a line calls backward."""
    words = Message("reduce the gathered losses before backward")
    handed_on = mended(fault.site, words, _reduce_handed_on)
    yield handed_on or mended(backward, words, _reduce_backward, instead="loss = loss.mean()")
    yield Fix(Message("return one value per sample, or loss.unsqueeze(0)"), confidence="choice")


def _with_batch_first(fault: Fault, birth: Site | None, batch: int) -> Iterator[Fix | None]:
    if fault.operands and math.prod(fault.operands[0].shape) == 1:
        yield Fix(Message("pass it as a Python number, which every replica gets, or expand it to the batch"))
        return
    yield _batch_first(fault, birth, batch)
    yield Fix(_STATE_IN_FORWARD)
    yield Fix(_TRANSPOSED, confidence="choice")


def _cut_it(fault: Fault, name: str) -> Iterator[Fix | None]:
    if fault.operands:
        yield Fix(Message("pass its tensors to the model as separate arguments or in a dict, which are split"))
    else:
        yield Fix(Message("pass it as a tensor, which is split with the batch"), f"{name} = torch.tensor({name})")


def _in_forward(fault: Fault, detail: KeptWhole) -> Iterator[Fix | None]:
    if fault.operands:
        yield mended(fault.site, Message("create it in forward, for the replica's part"), _zeros_here, fault, detail)
        yield Fix(_STATE_IN_FORWARD)
        yield Fix(_TRANSPOSED, confidence="choice")
        return
    words, size = Message("take the batch size from an input"), f"{detail.given or 'x'}.size(0)"
    yield mended(fault.site, words, _replace_attribute, detail, size, instead=size)


def _zeros_here(draft: Draft, statement: ast.stmt, fault: Fault, detail: KeptWhole) -> None:
    """`self.hidden`, which one line sets to zeros, becomes `torch.zeros(1, x.size(0), 5, device=x.device)`."""
    shape, made = fault.operands[0].shape, code_at(fault.birth)
    owner = draft.code.owner(statement)
    if made is None or owner is None or len(fault.operands) > 1 or shape.count(detail.samples) != 1:
        return
    assigned = [node for node in ast.walk(owner) if assigns_self_attribute(node, detail.attribute)]
    calls = list(map(name_of_called, nodes_in(made[1], ast.Call)))
    if len(assigned) > 1 or "zeros" not in calls:
        return
    given = detail.given
    sizes = [f"{given}.size(0)" if size == detail.samples else str(size) for size in shape]
    _replace_attribute(draft, statement, detail, f"torch.zeros({', '.join(sizes)}, device={given}.device)")


def _replace_attribute(draft: Draft, statement: ast.stmt, detail: KeptWhole, text: str) -> None:
    function = draft.code.scope(statement)
    if not isinstance(function, ast.FunctionDef) or detail.given not in [each.arg for each in function.args.args]:
        return
    for node in ast.walk(function):
        if is_self_attribute(node, detail.attribute) and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            draft.replace(node, text)


def _joinable(detail: NotJoined) -> Iterator[Fix]:
    if detail.problem != "class":
        yield Fix(Message("return the same keys and shapes in each replica, padded where sizes differ"))
        return
    code = ""
    if detail.first in ("int", "float", "bool"):
        code = f"torch.tensor([value], device={detail.given or 'x'}.device)"
    yield Fix(Message("return tensors in a tuple or a dict, and compute the rest outside of `forward`"), code)


def _fewer_replicas(fault: Fault, samples: int) -> Iterator[Fix | None]:
    yield mended(fault.birth, Message("use no more GPUs than there are samples"), set_device_ids, samples)
    yield Fix(Message("use a batch size of at least the number of GPUs, or drop_last=True in the loader"))


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
    return fix(_TRANSPOSED, draft)


def _argument(code: Code, function: ast.FunctionDef, statement: ast.stmt, shape: tuple[int, ...], target: ast.expr) -> str:
    """The parameter of `forward` that holds the input: the one with its name, else the first one after the module's input."""
    given = {each.arg for each in function.args.args} - {"self"}
    read = [node.id for node in nodes_in(statement, ast.Name) if isinstance(node.ctx, ast.Load)]
    used = [name for name in read if name in given]
    if ast.unparse(target) in used:
        return ast.unparse(target)
    if len(used) > 1:
        return used[1]
    return ""


def _reduce_handed_on(draft: Draft, _: ast.stmt) -> None:
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


_LEAST_BYTES = 2**20
_LEAST_SHARE = 0.1
"""Of the other GPUs' peak that the gathered outputs must take."""


def _find_uneven(trace: Trace) -> Iterator[Found]:
    """Yield hints on wrappers, each from its last call. A short last batch among others says nothing."""
    is_odd = any(fault.what == "io" for fault in trace.faults)
    last = {call.wrapper: call for call in trace.parallel}
    for wrapper, call in last.items():
        replicas = [each for each in trace.replicas if each.call == call.number]
        numbers = [each.number for each in trace.parallel if each.wrapper == wrapper]
        counts = [sum(each.call == number for each in trace.replicas) for number in numbers]
        reached = max(count or len(call.device_ids) for count in counts)
        samples = sum(each.samples for each in replicas)
        is_full = call.with_grad and trace.error.startswith("OutOfMemoryError")
        if samples and reached < len(call.device_ids) and not trace.error and not is_odd:
            yield _idle(call, samples, reached)
        elif replicas and (call.backward or is_full):
            yield from _gathered(trace, call, replicas)


def _idle(call: DataParallelCall, samples: int, reached: int) -> Found:
    count = len(call.device_ids)
    return Found(
        SiteInModule(call.site, call.wrapper),
        Message(
            "a batch of {samples} reaches {reached} of {count} GPUs; {idle} got no sample",
            samples=samples,
            reached=reached,
            count=count,
            idle=in_row(map(str, call.device_ids[reached:])),
        ),
        why=Message("torch splits the batch into chunks of {part}", part=-(-samples // count)),
        fixes=[Fix(Message("use a batch size that the number of GPUs divides"))],
        cause=f"idle {call.wrapper}",
        severity="info",
    )


def _gathered(trace: Trace, call: DataParallelCall, replicas: list[Replica]) -> Iterator[Found]:
    peaks = _list_peaks(trace, call, replicas)
    gathered, most = sum(each.output_bytes for each in replicas), peaks.pop(call.output_device, 0)
    rest = max(peaks.values(), default=0)
    if not rest or gathered < max(_LEAST_BYTES, _LEAST_SHARE * rest) or most - rest < gathered:
        return
    yield Found(
        SiteInModule(call.site, call.wrapper),
        Message(
            "{device} gathers {gathered} MiB of outputs: its peak is {most} MiB, that of the other GPUs at most {rest} MiB",
            device=call.output_device,
            gathered=_mebibytes(gathered),
            most=_mebibytes(most),
            rest=_mebibytes(rest),
        ),
        why=Message("DataParallel gathers the outputs of all replicas on one GPU, where the loss is computed"),
        fixes=[
            Fix(Message("compute the loss in `forward` and return it, so that only the losses are gathered"), _WITH_LOSS),
            Fix(Message("use DistributedDataParallel, whose processes each keep their model and outputs"), confidence="choice"),
        ],
        cause=f"gathered {call.wrapper}",
        severity="info",
    )


_WITH_LOSS = """class WithLoss(nn.Module):
    def __init__(self, model, loss_fn):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, x, target):
        return self.loss_fn(self.model(x), target)

loss = nn.DataParallel(WithLoss(model, loss_fn))(x, target).mean()"""


def _list_peaks(trace: Trace, call: DataParallelCall, replicas: list[Replica]) -> dict[DeviceId, int]:
    """Return the peak of each GPU of a call: by the end of the step where that is known, else by the gather."""
    peaks = {each.device: each.peak_bytes for each in replicas}
    for curve in trace.memory:
        if curve.device in peaks:
            peaks[curve.device] = max(peaks[curve.device], curve.end.peak)
    return peaks


def _mebibytes(count: int) -> str:
    size = count / 2**20
    return f"{size:.3g}" if size < 1000 else f"{size:.0f}"
