"""What goes wrong inside a replica or at the edges of a DataParallel call; the tensors that it cuts and joins, by name."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn

from devwidget.capture.data_parallel.constructions import built_at
from devwidget.capture.faults.owners import in_class
from devwidget.capture.modules import own, own_tensors, registered_entries, walk_modules
from devwidget.capture.object_fields import (
    class_name,
    copy_items,
    fields_of,
    find_class_attribute,
    is_a,
    is_scalar,
    items_of,
    key_text,
    module_name,
    parts_of,
)
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.event_log import bytes_of, device_id, format_dtype
from devwidget.capture.recording.parallel_calls import CALL, NUMBER
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.call_sites import locals_of, to_site
from devwidget.capture.source_code.frames import deep_tensors
from devwidget.capture.source_code.provenance import find_origin
from devwidget.capture.source_code.source_files import ClassName
from devwidget.capture.source_code.stack import innermost_step, user_frames
from devwidget.capture.tensors import DEEPEST, is_tensor, node_of, tensors_in
from devwidget.records.errors import error_text, message
from devwidget.records.fault_details import (
    FaultDetail,
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
from devwidget.records.trace import Operand

Named = dict[str, torch.Tensor]


def arguments_by_name(module: torch.nn.Module, args: Any, kwargs: Any) -> Named:
    """The tensors among the arguments of `forward`, called as its signature calls them."""
    return {path: tensor for name, value in named_arguments(module, args, kwargs) for path, tensor in by_name(value, name)}


def named_arguments(module: torch.nn.Module, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """The arguments of `forward`, called as its signature calls them."""
    names = _positional_names(type(module).forward)
    named = [(names[i] if i < len(names) else f"args[{i}]", value) for i, value in enumerate(args)]
    return [*named, *kwargs.items()]


def by_name(value: Any, name: str, depth: int = DEEPEST) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in nested lists, tuples and dicts, with the expression that reaches each of them."""
    if is_tensor(value):
        yield name, value
    elif depth and is_a(value, (list, tuple)):
        for index, part in enumerate(parts_of(value)):
            yield from by_name(part, f"{name}[{index}]", depth - 1)
    elif depth:
        for key, part in items_of(value) or ():
            yield from by_name(part, f"{name}[{key_text(key)}]", depth - 1)


def _positional_names(forward: Any) -> list[str]:
    """Names of the positional parameters after `self`; [] where they cannot be read."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())[1:]
    except (TypeError, ValueError):  # scripted and C++ functions
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


class ScatterOffsets:
    """Parts of tensors in the order of the replicas; tells where each part begins in the whole."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._ends: dict[str, int] = {}

    def add_piece(self, name: str, part: torch.Tensor, source: torch.device) -> Piece:
        """The next part of a tensor."""
        start = self._ends.get(name, 0)
        stop = self._ends[name] = start + self.measure_length(part)
        return Piece(name, tuple(part.shape), format_dtype(part.dtype), bytes_of(part), start, stop, device_id(source))

    def measure_length(self, part: torch.Tensor) -> int:
        """How long a part is along the axis that is cut; a number is joined as a vector of one."""
        if -part.dim() <= self._dim < part.dim():
            return part.shape[self._dim]
        return 1


def plain_attributes(replica: nn.Module) -> dict[tuple[int, str], Any]:
    """What the modules of a replica hold in plain attributes."""
    return {
        (index, name): value
        for index, (_, part) in enumerate(walk_modules(replica))
        for name, value in copy_items(own(part))
        if not name.startswith("_")
    }


def lost_writes(state: RecordingState, replica: nn.Module, before: dict[tuple[int, str], Any]) -> None:
    """Attributes that forward wrote into a replica, which is thrown away, and that the class relies on."""
    parts = [part for _, part in walk_modules(replica)]
    for (index, name), value in plain_attributes(replica).items():
        if before.get((index, name), _MISSING) is value:
            continue
        kind = type(parts[index])
        lost = before.get((index, name), _MISSING) is None and isinstance(value, torch.Tensor)
        look = functools.partial(_read_by_others if lost else classes.relied_on_writes, attribute=name)
        site = in_class(kind, lambda filename, owner, look=look: look(filename, owner))  # type: ignore[misc]
        if site is not None:
            path = state.tracker.path_of(parts[index])
            write_fault(state, "replica", path, site, "", LostWrite(name))


_MISSING = object()


def _read_by_others(filename: str, owner: ClassName, attribute: str) -> Site | None:
    """A write of what the class relies on, or what code outside of it reads from the model, where it is still None."""
    relied_on = classes.relied_on_writes(filename, owner, attribute)
    outside = classes.read_outside(filename, owner, attribute)
    return relied_on or (classes.first_write(filename, owner, attribute) if outside else None)


def without_parameters(state: RecordingState, replica: nn.Module, error: StopIteration) -> bool:
    """`next(self.parameters())` in a replica, which has none: give it some, so that forward can be run again."""
    site = innermost_site(error.__traceback__)
    parts = [part for _, part in walk_modules(replica)]
    owners = [part for part in parts if own_tensors(part) and not registered_entries(part, "_parameters")]
    if not owners:
        return False
    example = tensor_in(replica, site)
    write_fault(state, "replica", state.tracker.failed, site, "StopIteration", NoParameters(example))
    for part in parts if state.heal else ():
        own(part)["parameters"] = functools.partial(_former_parameters, part)
    return state.heal


def tensor_in(model: nn.Module, site: Site | None) -> str:
    """How the method at a line can write a parameter of its module: `embed.weight`."""
    method = site.function if site is not None else "forward"
    users = [part for _, part in walk_modules(model) if not module_name(type(part)).startswith("torch.")]
    owners = [part for part in users if find_class_attribute(type(part), method)]
    for part in (*owners, model):
        code = getattr(find_class_attribute(type(part), method), "__code__", None)
        if code is None or site is None or code.co_filename == site.file:
            for path, _ in deep_tensors(part):
                return path.removeprefix(".")
    return "weight"


def _former_parameters(module: nn.Module, recurse: bool = True) -> Iterator[torch.Tensor]:
    for _, part in walk_modules(module) if recurse else (("", module),):
        yield from own(part).get("_former_parameters", {}).values()


def cut_wrongly(
    state: RecordingState, odd: list[torch.Tensor], error: Exception, batch: int, dim: int, caller: FrameType | None
) -> None:
    """A replica failed, and one of its inputs was cut along an axis that is not the batch."""
    operands = tuple(report_cut_input(state, tensor, caller) for tensor in odd)
    site, text = innermost_site(error.__traceback__), error_text(error)
    write_fault(state, "io", state.tracker.failed, site, text, WrongAxis(batch, dim), operands)


def odd_lengths(inputs: list[torch.Tensor], dim: int) -> tuple[list[torch.Tensor], int]:
    """Inputs that are not as long along an axis as the batch, and its length: the most common one, else the longest."""
    lengths = [tensor.shape[dim] for tensor in inputs if tensor.dim() > dim]
    if len(lengths) > 2:
        batch = max(lengths, key=lengths.count, default=0)
    else:
        batch = max(lengths, default=0)
    return [tensor for tensor in inputs if tensor.dim() > dim and tensor.shape[dim] != batch], batch


def whole_values(module: nn.Module, args: Any, kwargs: Any, samples: int) -> dict[str, Any]:
    """The arguments of `forward` that are as long as the batch and go to every replica whole: lists of no tensors, and
    objects that hold tensors."""
    found = {}
    for name, value in named_arguments(module, args, kwargs):
        of_numbers = (
            is_a(value, (list, tuple)) and len(list(parts_of(value))) == samples and not any(True for _ in tensors_in(value))
        )
        if of_numbers or any(t.dim() and t.shape[0] == samples for _, t in tensors_of_object(value)):
            found[name] = value
    return found


def tensors_of_object(value: Any) -> list[tuple[str, torch.Tensor]]:
    """Tensors in the fields of an object of the user, into which scatter and gather do not look."""
    if value is None or is_tensor(value) or is_scalar(value) or is_a(value, (list, tuple, dict, nn.Module)):
        return []
    parts = items_of(value) or fields_of(value)
    return [(str(name), part) for name, part in parts if is_tensor(part)]


def read_whole(trace: TracebackType | None, values: dict[str, Any]) -> str:
    """Which of these a user's line names that an exception has passed; "" for none of them."""
    step = innermost_step(trace)
    if step is None:
        return ""
    words = set(_WORDS.findall(statements.statement_text(step.tb_frame.f_code.co_filename, step.tb_lineno)))
    here = [value for name, value in locals_of(step.tb_frame).items() if name in words]
    return next((name for name, whole in values.items() if any(value is whole for value in here)), "")


def not_cut(
    state: RecordingState, path: str | None, site: Site | None, error: str, name: str, value: Any, samples: int, replicas: int,
    explains: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """Every replica was given a value as it is, beside its share of the batch."""
    tensors = tensors_of_object(value)
    operands = tuple(operand_of(t, f"{name}.{field}", f"{name}.{field}", stray=True) for field, t in tensors)
    detail = NotCut(class_name(type(value)), name, samples, replicas, explains)
    write_fault(state, "io", path, site, error, detail, operands)


def not_joined(state: RecordingState, path: str, module: nn.Module, output: Any, error: Exception) -> bool:
    """Whether `gather` refused an output because it is no tensor, list or dict, and so it is told."""
    if output is None or is_tensor(output) or is_a(output, (list, tuple, dict)) or not isinstance(error, TypeError):
        return False
    kind = type(module)
    site = in_class(kind, lambda filename, owner: classes.last_return(filename, owner, "forward"))
    fields = tuple(name for name, _ in tensors_of_object(output))
    detail = NotJoined(class_name(kind), class_name(type(output)), fields)
    write_fault(state, "io", path, site, error_text(error), detail)
    return True


_WORDS = re.compile(r"[^\W\d]\w*")


def report_cut_input(state: RecordingState, tensor: torch.Tensor, caller: FrameType | None = None) -> Operand:
    """An input that was cut along the wrong axis; the caller of the wrapper leads to one that is older than the recording."""
    birth = state.births.find_birth(tensor)
    if birth is not None:
        made = to_site(birth.find_root().site)
    else:
        made = None
    if made is None and caller is not None:
        made = find_origin(list(user_frames(caller)), tensor, tensor.device).site
    return operand_of(tensor, "input", "", stray=True, birth=made)


def too_few_samples(
    state: RecordingState,
    wrapper: nn.Module,
    error: Exception,
    inputs: list[torch.Tensor],
    samples: int,
    count: int,
    caller: FrameType | None,
    built: Site | None = None,
) -> None:
    """A replica got the values that are not tensors and none of the tensors."""
    path, text = state.tracker.path_of(wrapper), error_text(error)
    detail = TooFewSamples(samples, count)
    built = built or built_at(wrapper, state, caller)
    write_fault(state, "io", path, None, text, detail, (report_cut_input(state, inputs[0], caller),), built)


def one_loss(state: RecordingState, losses: Any, error: Exception, site: Site | None) -> torch.Tensor | None:
    """The mean of a vector that backward refused because each replica had given a number; None if it is none of those.

    Most programs take the mean themselves, which is how it is meant to be done.
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
    """Whether all that it takes from the replicas are the numbers that each of them gave."""
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
    """Each replica gave a number, and gather made a vector of them, from which a line went backward."""
    site = in_class(kind, lambda filename, owner: classes.last_return(filename, owner, "forward"))
    write_fault(state, "io", path, site, "", ScalarOutputs(class_name(kind), replicas, backward))


def innermost_site(trace: TracebackType | None) -> Site | None:
    """The user's line nearest to where an exception was raised."""
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
    """Write down a fault of a replica."""
    fault = fault_at(
        state.tracker,
        what,
        "DataParallel.forward",
        site,
        module=path,
        phase="forward",
        error=error,
        operands=operands,
        healed=state.heal and not isinstance(detail, WrongAxis),
        birth=birth,
        model_name=state.tracker.model_name,
        detail=detail,
    )
    state.log.log_fault(fault)
