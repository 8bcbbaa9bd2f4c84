"""Report faults inside a replica or at the edges of a DataParallel call, and name the tensors that it splits and joins."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.data_parallel.constructions import built_at
from devwidget.capture.data_parallel.originals import find_assignment, find_stored
from devwidget.capture.data_parallel.outputs import describe_unjoined
from devwidget.capture.modules import is_module, own, own_tensors, registered_entries, walk_modules
from devwidget.capture.object_fields import (
    class_name,
    copy_items,
    fields_of,
    find_class_attribute,
    is_a,
    is_scalar,
    items_of,
    key_text,
    parts_of,
)
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.event_log import bytes_of, device_id, format_dtype
from devwidget.capture.recording.parallel_calls import CALL, NUMBER
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.call_sites import to_site
from devwidget.capture.source_code.frames import deep_tensors
from devwidget.capture.source_code.provenance import find_origin
from devwidget.capture.source_code.source_files import read_file
from devwidget.capture.source_code.stack import innermost_step, user_frames
from devwidget.capture.tensors import DEEPEST, is_tensor, node_of, tensors_in
from devwidget.records.errors import message
from devwidget.records.fault_details import (
    CallsOriginal,
    FaultDetail,
    KeptWhole,
    LostWrite,
    NoParameters,
    NotCut,
    NotJoined,
    ScalarOutputs,
    TooFewSamples,
    WrongAxis,
)
from devwidget.records.parallel import Piece
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand

Named = dict[str, torch.Tensor]


def arguments_by_name(module: torch.nn.Module, args: Any, kwargs: Any) -> Named:
    """Return the tensors among the arguments of `forward`, named as in its signature."""
    return {path: tensor for name, value in named_arguments(module, args, kwargs) for path, tensor in by_name(value, name)}


def named_arguments(module: torch.nn.Module, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """Return the arguments of `forward`, named as in its signature."""
    names = _positional_names(type(module).forward)
    named = [(names[i] if i < len(names) else f"args[{i}]", value) for i, value in enumerate(args)]
    return [*named, *kwargs.items()]


def by_name(value: Any, name: str, depth: int = DEEPEST) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested lists, tuples and dicts, each with the expression that reaches it."""
    if is_tensor(value):
        yield name, value
    elif depth and is_a(value, (list, tuple)):
        for index, part in enumerate(parts_of(value)):
            yield from by_name(part, f"{name}[{index}]", depth - 1)
    elif depth:
        for key, part in items_of(value) or ():
            yield from by_name(part, f"{name}[{key_text(key)}]", depth - 1)


def _positional_names(forward: Any) -> list[str]:
    """Return the names of the positional parameters after `self`; [] if they cannot be read."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())[1:]
    except (TypeError, ValueError):  # scripted and C++ functions
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


class ScatterOffsets:
    """Parts of tensors in the order of the replicas. Computes where each part begins in the whole."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._ends: dict[str, int] = {}

    def add_piece(self, name: str, part: torch.Tensor, source: torch.device) -> Piece:
        """Add the next part of a tensor."""
        start = self._ends.get(name, 0)
        stop = self._ends[name] = start + self.measure_length(part)
        return Piece(name, tuple(part.shape), format_dtype(part.dtype), bytes_of(part), start, stop, device_id(source))

    def count_lost(self, whole: Named) -> int:
        """Return how many entries along the split axis reach no replica; the most that a tensor loses."""
        cut = {name: tensor for name, tensor in whole.items() if tensor.dim() > self._dim and name in self._ends}
        return max((tensor.shape[self._dim] - self._ends[name] for name, tensor in cut.items()), default=0)

    def measure_length(self, part: torch.Tensor) -> int:
        """Return the length of a part along the split axis. A scalar is joined as a vector of one."""
        if -part.dim() <= self._dim < part.dim():
            return part.shape[self._dim]
        return 1


def plain_attributes(replica: nn.Module) -> dict[tuple[int, str], Any]:
    """Return what the modules of a replica hold in plain attributes."""
    return {
        (index, name): value
        for index, (_, part) in enumerate(walk_modules(replica))
        for name, value in copy_items(own(part))
        if not name.startswith("_")
    }


def lost_writes(state: RecordingState, replica: nn.Module, before: dict[tuple[int, str], Any]) -> None:
    """Record attributes that forward wrote into a replica, which is discarded, and that the class reads."""
    parts = [part for _, part in walk_modules(replica)]
    for (index, name), value in plain_attributes(replica).items():
        old = before.get((index, name), _MISSING)
        if old is value:
            continue
        site = classes.relied_on_write(type(parts[index]), name, by_others=old is None and is_tensor(value))
        if site is not None:
            path = state.tracker.path_of(parts[index])
            write_fault(state, "replica", path, site, "", LostWrite(name))


_MISSING = object()


def without_parameters(state: RecordingState, replica: nn.Module, error: StopIteration) -> bool:
    """Handle `next(self.parameters())` in a replica, which has no parameters: add some, so that forward can run again."""
    site = innermost_site(error.__traceback__)
    parts = [part for _, part in walk_modules(replica)]
    if not any(own_tensors(part) and not registered_entries(part, "_parameters") for part in parts):
        return False
    write_fault(state, "replica", state.tracker.failed, site, "StopIteration", NoParameters(tensor_in(replica, site)))
    for part in parts if state.heal else ():
        own(part)["parameters"] = functools.partial(_former_parameters, part)
    return state.heal


def blame_stored(
    state: RecordingState,
    wrapper: nn.DataParallel[Any],
    failed: Fault | FailedReplica,
    runs: Callable[[CodeType, str], bool],
) -> bool:
    """Report the attribute through which a replica called the original module; return whether there is one.

    Args:
        runs: as in `find_stored`.
    """
    stored = find_stored(wrapper.module, runs)
    if stored is None:
        return False
    explains = (failed.number,) if isinstance(failed, Fault) else ()
    detail = CallsOriginal(stored.name, stored.code.co_name, device_id(wrapper.src_device_obj), explains)
    path = state.tracker.path_of(stored.part)
    write_fault(state, "replica", path, failed.site, failed.error, detail, birth=find_assignment(stored))
    return True


def tensor_in(model: nn.Module, site: Site | None) -> str:
    """Return how the method at a line can write a parameter of its module: `embed.weight`."""
    for part in (*owners_at(model, site), model):
        for path, _ in deep_tensors(part):
            return path.removeprefix(".")
    return "weight"


def _former_parameters(module: nn.Module, recurse: bool = True) -> Iterator[torch.Tensor]:
    for _, part in walk_modules(module) if recurse else (("", module),):
        yield from own(part).get("_former_parameters", {}).values()


class FailedReplica(NamedTuple):
    """A replica whose forward raised.

    Attributes:
        number: its place among the replicas.
        module: path of the module that failed.
        site: the user's line that failed.
        error: its text.
        caller: the caller, whose frame leads to inputs and wrappers that are older than the recording.
    """

    number: int
    module: str | None
    site: Site | None
    error: str
    caller: FrameType | None


def blame_cut(state: RecordingState, wrapper: nn.DataParallel[Any], inputs: tuple[Any, Any], failed: FailedReplica) -> None:
    """Report how the inputs were split, if that can explain why a replica failed.

    Args:
        inputs: arguments and keyword arguments of the wrapper.
    """
    whole, replicas = list(tensors_in(inputs)), len(wrapper.device_ids)
    odd, batch = _odd_lengths(whole, wrapper.dim)
    if "missing" in failed.error and 0 < batch <= failed.number * math.ceil(batch / replicas):
        detail, operand = TooFewSamples(batch, replicas), _describe_input(state, whole[0], failed.caller)
        path = state.tracker.path_of(wrapper)
        write_fault(state, "io", path, None, failed.error, detail, (operand,), built_at(wrapper, state, failed.caller))
        return
    is_of_devices = "same device" in failed.error
    words = _WORDS.findall(failed.site.text) if failed.site is not None else ()
    for name, value in named_arguments(wrapper.module, *inputs):
        if name in words and _is_given_whole(value, batch) and bool(tensors_of_object(value)) == is_of_devices:
            not_cut(state, failed.module, failed.site, failed.error, name, value, batch, replicas)
            return
    if not is_of_devices and _blame_kept(state, wrapper, inputs, failed, batch):
        return
    if odd and not is_of_devices:
        operands = tuple(_describe_input(state, tensor, failed.caller) for tensor in odd)
        write_fault(state, "io", failed.module, failed.site, failed.error, WrongAxis(batch, wrapper.dim), operands)


def _blame_kept(
    state: RecordingState, wrapper: nn.DataParallel[Any], inputs: tuple[Any, Any], failed: FailedReplica, batch: int
) -> bool:
    """Report an attribute that the failing function reads and that has the length of the whole batch, as the error says."""
    share = math.ceil(batch / len(wrapper.device_ids))
    sizes = set(map(int, re.findall(r"\d+", failed.error)))
    if failed.site is None or batch not in sizes or batch == share:
        return False
    around = read_file(failed.site.file).functions_around(failed.site.line)
    texts = [failed.site.text, *(ast.unparse(function) for function in around[:1])]
    names = dict.fromkeys(name for text in texts for name in re.findall(r"\bself\.(\w+)", text))
    for part in owners_at(wrapper.module, failed.site):
        values = {**own(part), **dict(registered_entries(part, "_buffers"))}
        for name in names:
            value = values.get(name)
            tensors = [tensor for tensor in tensors_in(value) if batch in tensor.shape and not is_module(value)]
            is_length = type(value) is int and value == batch
            if is_length or (tensors and sizes >= {share, batch}):
                given = first_tensor_argument(wrapper.module, inputs)
                detail = KeptWhole(name, batch, len(wrapper.device_ids), given)
                operands = tuple(operand_of(tensor, f"self.{name}", f"self.{name}", stray=True) for tensor in tensors)
                birth = classes.find_filling(type(part), name)
                write_fault(state, "io", failed.module, failed.site, failed.error, detail, operands, birth)
                return True
    return False


def owners_at(model: nn.Module, site: Site | None) -> list[nn.Module]:
    """Return modules whose class has the method at a line."""
    if site is None:
        return []
    place, found = (site.file, site.function, site.line), []
    for _, part in walk_modules(model):
        if any(has_line(each.__code__, *place) for each in classes.functions_of(type(part))):
            found.append(part)
    return found


def has_line(code: CodeType, file: str, function: str, line: int) -> bool:
    """Return whether a line of a traceback is in a function."""
    last = max(line or 0 for _, _, line in code.co_lines())
    return (code.co_filename, code.co_name) == (file, function) and code.co_firstlineno <= line <= last


def first_tensor_argument(module: nn.Module, inputs: tuple[Any, Any]) -> str:
    """Return the name of the first tensor that `forward` gets as an argument of its own; "" if there is none."""
    return next((name for name in arguments_by_name(module, *inputs) if name.isidentifier()), "")


def check_outputs(state: RecordingState, wrapper: nn.DataParallel[Any], inputs: tuple[Any, Any], outputs: Any) -> None:
    """Report outputs of the replicas that cannot be gathered."""
    kind, given = type(wrapper.module), first_tensor_argument(wrapper.module, inputs)
    detail = describe_unjoined(outputs, wrapper.dim, kind, given)
    if detail is not None:
        site = classes.return_of(kind, "forward")
        write_fault(state, "io", state.tracker.path_of(wrapper.module), site, "", detail)


def check_split(
    state: RecordingState, wrapper: nn.DataParallel[Any], whole: Named, lost: int, site: Site | None, caller: FrameType | None
) -> None:
    """Report inputs that are shorter than the batch. torch splits all as often as the shortest one, and drops the rest."""
    odd, batch = _odd_lengths(list(whole.values()), wrapper.dim)
    if lost > 0 and odd and find_class_attribute(type(wrapper), "scatter") is nn.DataParallel.scatter:
        operands = tuple(_describe_input(state, tensor, caller) for tensor in odd)
        detail = WrongAxis(batch, wrapper.dim, lost)
        write_fault(state, "io", state.tracker.path_of(wrapper.module), site, "", detail, operands)


def _odd_lengths(inputs: list[torch.Tensor], dim: int) -> tuple[list[torch.Tensor], int]:
    """Return inputs whose length along an axis differs from the batch, and the batch length: the most common one, else the
    longest.
    """
    cut = [tensor for tensor in inputs if tensor.dim() > dim]
    lengths = [tensor.shape[dim] for tensor in cut]
    if len(lengths) > 2:
        batch = max(lengths, key=lengths.count)
    else:
        batch = max(lengths, default=0)
    return [tensor for tensor in cut if tensor.shape[dim] != batch], batch


def _is_given_whole(value: Any, samples: int) -> bool:
    """Return whether a value is as long as the batch but goes to every replica whole: a list without tensors, or an object
    with some.
    """
    if is_a(value, (list, tuple)):
        return len(list(parts_of(value))) == samples and next(tensors_in(value), None) is None
    return any(tensor.dim() and tensor.shape[0] == samples for _, tensor in tensors_of_object(value))


def tensors_of_object(value: Any) -> list[tuple[str, torch.Tensor]]:
    """Return tensors in the fields of a user's object. scatter and gather do not look into objects."""
    if value is None or is_tensor(value) or is_scalar(value) or is_a(value, (list, tuple, dict, nn.Module)):
        return []
    parts = items_of(value) or fields_of(value)
    return [(str(name), part) for name, part in parts if is_tensor(part)]


def not_cut(
    state: RecordingState, path: str | None, site: Site | None, error: str, name: str, value: Any, samples: int, replicas: int,
    explains: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """Report that every replica got a whole value in addition to its share of the batch."""
    tensors = tensors_of_object(value)
    operands = tuple(operand_of(t, f"{name}.{field}", f"{name}.{field}", stray=True) for field, t in tensors)
    detail = NotCut(class_name(type(value)), name, samples, replicas, explains)
    write_fault(state, "io", path, site, error, detail, operands)


_WORDS = re.compile(r"[^\W\d]\w*")


def _describe_input(state: RecordingState, tensor: torch.Tensor, caller: FrameType | None) -> Operand:
    """Describe an input that was split wrongly. The frame of the wrapper's caller leads to one that is older than the
    recording.
    """
    birth = state.births.find_birth(tensor)
    made = to_site(birth.find_root().site) if birth is not None else None
    if made is None and caller is not None:
        made = find_origin(list(user_frames(caller)), tensor, tensor.device).site
    return operand_of(tensor, "input", "", stray=True, birth=made)


def one_loss(state: RecordingState, losses: Any, error: Exception, site: Site | None) -> torch.Tensor | None:
    """Report a vector that backward rejected because each replica returned a number; return its mean to repair that.

    Most programs take the mean themselves, as DataParallel intends.
    """
    call = state.parallel.latest_call()
    if call is None or call.gives_numbers is None or "only for scalar outputs" not in message(error):
        return None
    if not is_tensor(losses) or losses.shape != (len(call.runs),) or not _is_of_numbers(losses):
        return None
    scalar_outputs(state, f"{call.path}.module".strip("."), call.gives_numbers, len(call.runs), site)
    if state.heal:
        return losses.mean()
    return None


def _is_of_numbers(loss: torch.Tensor) -> bool:
    """Return whether all that it takes from the replicas are their scalar outputs."""
    nodes, seen, gathered = [node_of(loss)], set[Any](), []
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if CALL in node.metadata:
            gathered.append(node)
        else:
            nodes += [before for before, _ in node.next_functions]
    return bool(gathered) and all(NUMBER in node.metadata for node in gathered)


def scalar_outputs(state: RecordingState, path: str, kind: type, replicas: int, backward: Site | None = None) -> None:
    """Report that each replica returned a number, and that a line called backward on the gathered vector."""
    site = classes.return_of(kind, "forward")
    write_fault(state, "io", path, site, "", ScalarOutputs(class_name(kind), replicas, backward))


def innermost_site(trace: TracebackType | None) -> Site | None:
    """Return the user's line nearest to where an exception was raised."""
    step = innermost_step(trace)
    if step is None:
        return None
    code = step.tb_frame.f_code
    return statements.site_at(code.co_filename, step.tb_lineno, code.co_name)


def write_fault(
    state: RecordingState,
    what: Any,
    path: str | None,
    site: Site | None,
    error: str,
    detail: FaultDetail,
    operands: tuple[Operand, ...] = (),
    birth: Site | None = None,
) -> None:
    """Record a fault of a replica."""
    fault = fault_at(
        state.tracker,
        what,
        "DataParallel.forward",
        site,
        module=path,
        phase="forward",
        error=error,
        operands=operands,
        healed=state.heal and not isinstance(detail, WrongAxis | KeptWhole | NotJoined),
        birth=birth,
        model_name=state.tracker.model_name,
        detail=detail,
    )
    state.log.log_fault(fault)
