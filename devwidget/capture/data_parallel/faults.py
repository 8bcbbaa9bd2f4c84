"""Report faults inside a replica or at the edges of a DataParallel call, and name the tensors that it splits and joins."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.data_parallel.constructions import built_at
from devwidget.capture.data_parallel.originals import find_assignment, find_stored
from devwidget.capture.object_fields import (
    class_name,
    class_values,
    copy_items,
    fields_of,
    find_class_attribute,
    is_a,
    is_scalar,
    items_of,
    key_text,
    parts_of,
)
from devwidget.capture.recording.event_log import bytes_of, device_id, format_dtype, operand_of
from devwidget.capture.recording.parallel_calls import CALL, NUMBER
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import classes
from devwidget.capture.source_code.call_sites import innermost_site, to_site
from devwidget.capture.source_code.frames import deep_tensors
from devwidget.capture.source_code.provenance import find_origin
from devwidget.capture.source_code.source_files import read_file
from devwidget.capture.source_code.stack import user_frames
from devwidget.capture.tensors import (
    DEEPEST,
    is_tensor,
    modules_in,
    node_of,
    nodes_behind,
    own,
    own_tensors,
    registered_entries,
    tensors_in,
)
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
_WORDS = re.compile(r"[^\W\d]\w*")


def arguments_by_name(module: nn.Module, args: Any, kwargs: Any) -> Named:
    """Return the tensors among the arguments of `forward`, named as in its signature."""
    return {path: tensor for name, value in named_arguments(module, args, kwargs) for path, tensor in by_name(value, name)}


def named_arguments(module: nn.Module, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """Return the arguments of `forward`, named as in its signature."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)  # scripted functions have none
    names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
    more = [f"args[{number}]" for number in range(len(names), len(args))]
    return [*zip((*names, *more), args, strict=False), *kwargs.items()]


def by_name(value: Any, name: str, depth: int = DEEPEST) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested lists, tuples and dicts, each with the expression that reaches it."""
    if is_tensor(value):
        yield name, value
    elif depth:
        parts = enumerate(parts_of(value)) if is_a(value, (list, tuple)) else items_of(value)
        for key, part in parts or ():
            yield from by_name(part, f"{name}[{key_text(key)}]", depth - 1)


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
        lost = 0
        for name, tensor in whole.items():
            if tensor.dim() > self._dim and name in self._ends:
                lost = max(lost, tensor.shape[self._dim] - self._ends[name])
        return lost

    def measure_length(self, part: torch.Tensor) -> int:
        """Return the length of a part along the split axis. A scalar is joined as a vector of one."""
        if -part.dim() <= self._dim < part.dim():
            return part.shape[self._dim]
        return 1


class FailedReplica(NamedTuple):
    """A replica whose forward raised.

    Attributes:
        number: its place among the replicas.
        module: path of the module that failed.
        site: the user's line that failed.
        error: its text.
    """

    number: int
    module: str | None
    site: Site | None
    error: str


@dataclass(slots=True)
class CallFaults:
    """Reports what a wrapper could not split, run or join.

    Attributes:
        state: state of the recording.
        wrapper: the wrapper.
        inputs: its arguments and keyword arguments.
        caller: its caller, whose frame leads to inputs and wrappers that are older than the recording.
    """

    state: RecordingState
    wrapper: nn.DataParallel[Any]
    inputs: tuple[Any, Any]
    caller: FrameType | None

    def blame_stored(self, failed: Fault | FailedReplica, runs: Callable[[CodeType, str], bool]) -> bool:
        """Report the attribute through which a replica called the original module; return whether there is one.

        Args:
            failed: what failed in the replica.
            runs: as in `find_stored`.
        """
        stored = find_stored(self.wrapper.module, runs)
        if stored is None:
            return False
        detail = CallsOriginal(stored.name, stored.code.co_name, device_id(self.wrapper.src_device_obj))
        if isinstance(failed, Fault):
            detail = replace(detail, explains=(failed.number,))
        path = self.state.tracker.path_of(stored.part)
        write_fault(self.state, "replica", path, failed.site, detail, error=failed.error, birth=find_assignment(stored))
        return True

    def blame_split(self, failed: FailedReplica) -> None:
        """Report how the inputs were split, if that can explain why a replica failed."""
        whole, replicas = list(tensors_in(self.inputs)), len(self.wrapper.device_ids)
        odd, batch = _odd_lengths(whole, self.wrapper.dim)
        if "missing" in failed.error and 0 < batch <= failed.number * math.ceil(batch / replicas):
            path, operands = self.state.tracker.path_of(self.wrapper), self._describe_inputs(whole[:1])
            birth = built_at(self.wrapper, self.state, self.caller)
            too_few = TooFewSamples(batch, replicas)
            write_fault(self.state, "io", path, None, too_few, error=failed.error, operands=operands, birth=birth)
            return
        is_of_devices = "same device" in failed.error
        words = _WORDS.findall(failed.site.text) if failed.site is not None else ()
        for name, value in named_arguments(self.wrapper.module, *self.inputs):
            if name in words and _is_given_whole(value, batch) and bool(tensors_of_object(value)) == is_of_devices:
                self.report_uncut(failed.module, failed.site, failed.error, name, value, batch)
                return
        if is_of_devices or self._blame_kept(failed, batch) or not odd:
            return
        detail, operands = WrongAxis(batch, self.wrapper.dim), self._describe_inputs(odd)
        write_fault(self.state, "io", failed.module, failed.site, detail, error=failed.error, operands=operands)

    def _blame_kept(self, failed: FailedReplica, batch: int) -> bool:
        """Report an attribute that the failing function reads and that has the length of the whole batch, as the error
        says.
        """
        replicas, sizes = len(self.wrapper.device_ids), {int(size) for size in re.findall(r"\d+", failed.error)}
        share = math.ceil(batch / replicas)
        if failed.site is None or batch not in sizes or batch == share:
            return False
        around = read_file(failed.site.file).functions_around(failed.site.line)
        text = "\n".join([failed.site.text, *map(ast.unparse, around[:1])])
        for part in owners_at(self.wrapper.module, failed.site):
            values = {**own(part), **dict(registered_entries(part, "_buffers"))}
            for name in dict.fromkeys(re.findall(r"\bself\.(\w+)", text)):
                value = values.get(name)
                tensors = [tensor for tensor in tensors_in(value) if batch in tensor.shape]
                is_length = type(value) is int and value == batch
                if is_length or (tensors and share in sizes):
                    detail = KeptWhole(name, batch, replicas, self._first_tensor_argument())
                    operands = tuple(operand_of(tensor, f"self.{name}", f"self.{name}", stray=True) for tensor in tensors)
                    birth = classes.find_filling(type(part), name)
                    fields = {"error": failed.error, "operands": operands, "birth": birth}
                    write_fault(self.state, "io", failed.module, failed.site, detail, **fields)
                    return True
        return False

    def _first_tensor_argument(self) -> str:
        """Return the name of the first tensor that `forward` gets as an argument of its own; "" if there is none."""
        return next(filter(str.isidentifier, arguments_by_name(self.wrapper.module, *self.inputs)), "")

    def check_outputs(self, outputs: Any) -> None:
        """Report outputs of the replicas that cannot be gathered."""
        module = self.wrapper.module
        detail = describe_unjoined(outputs, self.wrapper.dim, type(module), self._first_tensor_argument())
        if detail is not None:
            site = classes.return_of_forward(type(module))
            write_fault(self.state, "io", self.state.tracker.path_of(module), site, detail)

    def check_split(self, whole: Named, lost: int, site: Site | None) -> None:
        """Report inputs that are shorter than the batch. torch splits all as often as the shortest one, and drops the rest."""
        odd, batch = _odd_lengths(list(whole.values()), self.wrapper.dim)
        if lost > 0 and odd and find_class_attribute(type(self.wrapper), "scatter") is nn.DataParallel.scatter:
            path, detail = self.state.tracker.path_of(self.wrapper.module), WrongAxis(batch, self.wrapper.dim, lost)
            write_fault(self.state, "io", path, site, detail, operands=self._describe_inputs(odd))

    def report_uncut(
        self, path: str | None, site: Site | None, error: str, name: str, value: Any, samples: int,
        explains: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """Report that every replica got a whole value in addition to its share of the batch."""
        operands = []
        for field, tensor in tensors_of_object(value):
            operands.append(operand_of(tensor, f"{name}.{field}", f"{name}.{field}", stray=True))
        detail = NotCut(class_name(type(value)), name, samples, len(self.wrapper.device_ids), explains)
        write_fault(self.state, "io", path, site, detail, error=error, operands=tuple(operands))

    def _describe_inputs(self, tensors: list[torch.Tensor]) -> tuple[Operand, ...]:
        """Describe inputs that were split wrongly."""
        operands = []
        for tensor in tensors:
            root, birth = self.state.births.find_root(tensor), None
            if root is not None:
                birth = to_site(root.site)
            if birth is None and self.caller is not None:
                birth = find_origin(list(user_frames(self.caller)), tensor, tensor.device).site
            operands.append(operand_of(tensor, "input", "", stray=True, birth=birth))
        return tuple(operands)


def _odd_lengths(inputs: list[torch.Tensor], dim: int) -> tuple[list[torch.Tensor], int]:
    """Return inputs whose length along an axis differs from the batch, and the batch length: the most common one, else the
    longest.
    """
    cut = [tensor for tensor in inputs if tensor.dim() > dim]
    lengths = sorted((tensor.shape[dim] for tensor in cut), reverse=True)
    batch = max(lengths, default=0)
    if len(lengths) > 2:
        batch = max(lengths, key=lengths.count)
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
    if is_tensor(value) or is_scalar(value) or is_a(value, (list, tuple, dict, nn.Module)):
        return []
    return [(str(name), part) for name, part in items_of(value) or fields_of(value) if is_tensor(part)]


# Inside of a replica.


def copy_attributes(replica: nn.Module) -> list[tuple[nn.Module, dict[str, Any]]]:
    """Return the modules of a replica, each with what it holds now."""
    return [(part, own(part).copy()) for part in modules_in(replica)]


def report_lost_writes(state: RecordingState, before: list[tuple[nn.Module, dict[str, Any]]]) -> None:
    """Record attributes that forward wrote into a replica, which is discarded, and that the class reads."""
    for part, attributes in before:
        for name, value in copy_items(own(part)):
            old = attributes.get(name, _MISSING)
            if old is value or name.startswith("_"):
                continue
            site = classes.relied_on_write(type(part), name, by_others=old is None and is_tensor(value))
            if site is not None:
                write_fault(state, "replica", state.tracker.path_of(part), site, LostWrite(name))


_MISSING = object()


def without_parameters(state: RecordingState, replica: nn.Module, error: StopIteration) -> bool:
    """Handle `next(self.parameters())` in a replica, which has no parameters: add some, so that forward can run again."""
    site = innermost_site(error)
    parts = modules_in(replica)
    if not any(own_tensors(part) and not registered_entries(part, "_parameters") for part in parts):
        return False
    detail = NoParameters(tensor_in(replica, site))
    write_fault(state, "replica", state.tracker.failed, site, detail, error="StopIteration")
    if state.heal:
        for part in parts:
            own(part)["parameters"] = functools.partial(_former_parameters, part)
    return state.heal


def _former_parameters(module: nn.Module, recurse: bool = True) -> Iterator[torch.Tensor]:
    parts: Iterable[nn.Module] = [module]
    if recurse:
        parts = modules_in(module)
    for part in parts:
        yield from own(part).get("_former_parameters", {}).values()


def tensor_in(model: nn.Module, site: Site | None) -> str:
    """Return how the method at a line can write a parameter of its module: `embed.weight`."""
    for part in (*owners_at(model, site), model):
        for path, _ in deep_tensors(part):
            return path.removeprefix(".")
    return "weight"


def owners_at(model: nn.Module, site: Site | None) -> list[nn.Module]:
    """Return modules whose class has the method at a line."""
    if site is None:
        return []
    place, found = (site.file, site.function, site.line), []
    for part in modules_in(model):
        if any(has_line(each.__code__, *place) for each in classes.functions_of(type(part))):
            found.append(part)
    return found


def has_line(code: CodeType, file: str, function: str, line: int) -> bool:
    """Return whether a line of a traceback is in a function."""
    last = max(line or 0 for _, _, line in code.co_lines())
    return (code.co_filename, code.co_name) == (file, function) and code.co_firstlineno <= line <= last


# Losses that each replica returns.


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
    nodes = nodes_behind([node_of(loss)], _is_of_call)
    gathered = list(filter(_is_of_call, nodes))
    return bool(gathered) and all(NUMBER in node.metadata for node in gathered)


def _is_of_call(node: Any) -> bool:
    return CALL in node.metadata


def scalar_outputs(state: RecordingState, path: str, kind: type, replicas: int, backward: Site | None = None) -> None:
    """Report that each replica returned a number, and that a line called backward on the gathered vector."""
    site = classes.return_of_forward(kind)
    write_fault(state, "io", path, site, ScalarOutputs(class_name(kind), replicas, backward))


def write_fault(
    state: RecordingState, what: Any, path: str | None, site: Site | None, detail: FaultDetail, **fields: Any
) -> None:
    """Record a fault of a replica."""
    is_healed = state.heal and not isinstance(detail, WrongAxis | KeptWhole | NotJoined)
    fields |= {"module": path, "phase": "forward", "healed": is_healed, "detail": detail}
    state.report_fault(what, "DataParallel.forward", site, **fields)


_Unjoined = tuple[str, Any, str, str]
"""An output that cannot be joined: its name, then the fields `problem`, `first` and `other` of `NotJoined`."""


def describe_unjoined(outputs: Sequence[Any], dim: int, owner: type, given: str) -> NotJoined | None:
    """Describe the outputs of the replicas that cannot be joined for the same reason as the first one.

    Args:
        outputs: what each replica returned.
        dim: the axis along which tensors are joined.
        owner: the class of the wrapped module.
        given: a tensor argument of `forward`.
    Source: `gather_map` of torch/nn/parallel/scatter_gather.py.
    """
    if len(outputs) < 2:
        return None
    found = list(_find_unjoined(outputs, "output", dim, DEEPEST))
    if not found:
        return None
    _, problem, first, other = found[0]
    names = tuple(name for name, each, *_ in found if each == problem)
    return NotJoined(class_name(owner), names, problem, first, other, given)


def _find_unjoined(values: Sequence[Any], name: str, dim: int, depth: int) -> Iterator[_Unjoined]:
    first = values[0]
    if first is None or not depth:
        return
    others = [each for each in values if not is_tensor(each)]
    if others and len(others) < len(values):
        yield name, "class", class_name(type(others[0])), ""
    elif not others:
        shapes = [list(each.shape) for each in values]
        for shape in shapes[1:]:
            if _size_beside(shape, dim) != _size_beside(shapes[0], dim):
                yield name, "shape", str(shapes[0]), str(shape)
                return
    elif is_a(first, (dict, list, tuple)):
        yield from _find_in_parts(values, name, dim, depth)
    elif is_scalar(first) or not any(each == "__iter__" for each, _ in class_values(type(first), object)):
        yield name, "class", class_name(type(first)), ""


def _size_beside(shape: list[int], dim: int) -> tuple[int, list[int]]:
    """Return the number of axes, and the size along all but one."""
    axis = dim % max(1, len(shape))
    return len(shape), shape[:axis] + shape[axis + 1 :]


def _find_in_parts(values: Sequence[Any], name: str, dim: int, depth: int) -> Iterator[_Unjoined]:
    is_list = is_a(values[0], (list, tuple))
    parts = []
    for each in values:
        pairs = list(enumerate(parts_of(each))) if is_list else items_of(each) or []
        if not all(is_scalar(key) for key, _ in pairs):  # the hash of an object is the user's code
            return
        parts.append(dict(pairs))
    first = parts[0]
    for each in parts[1:]:
        if is_list and len(each) != len(first):
            yield name, "length", str(len(first)), str(len(each))
            return
        if each.keys() != first.keys():
            yield name, "keys", ", ".join(map(key_text, first)), ", ".join(map(key_text, each))
            return
    for key in first:
        yield from _find_unjoined([each[key] for each in parts], f"{name}[{key_text(key)}]", dim, depth - 1)
