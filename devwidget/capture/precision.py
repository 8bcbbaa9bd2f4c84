"""Dtypes that an operator does not take, does not mix, or has no kernel for on a device, and autocast regions behind them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from devwidget.capture.faults import operand_names
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall, arguments
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.object_fields import is_a, is_exactly
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.source_code.expressions import Scope, argument_named
from devwidget.capture.source_code.source_files import read_file
from devwidget.capture.source_code.stack import locals_of, user_frames
from devwidget.capture.source_code.statements import definition_site, site_at
from devwidget.capture.tensors import (
    DEVICE,
    is_module,
    is_parameter,
    modules_in,
    node_of,
    own_parameters,
    replace_tensors,
    tensors_in,
)
from devwidget.records.device import KINDS
from devwidget.records.errors import message
from devwidget.records.fault_details import AutocastRegion, NoKernel, UnsafeLoss, WrongDtype
from devwidget.records.site import Site
from devwidget.records.syntax import Function, is_inplace

_LOW = torch.float16, torch.bfloat16
_DTYPE_WORDS = re.compile(r"same dtype|scalar type|dtype|Input type .* and (weight|bias) type", re.IGNORECASE)
_INTEGER_WORDS = re.compile(
    r"Input type .* and (weight|bias) type|result type \w+ can't be cast|not implemented for '(Long|Int|Short|Byte|Char|Bool)'"
    r"|same dtype|scalar type"
)
_INDEX = re.compile(
    r"'indices' to have one of the following scalar types|tensors used as indices must be|Expected dtype int.* for index"
    r"|index tensor of type LongTensor|expected scalar type Long but|nll_loss\w*\" not implemented|Expected indices to be Long"
    r"|for indices, but"
)
_MASK = re.compile(r"boolean masks?\b|to be a boolean tensor|BoolTensor for mask|expected BoolTensor", re.IGNORECASE)
_INDEX_NAMES = ("index", "indices", "target", "mask", "attn_mask", "condition")
_NO_KERNEL = re.compile(
    r"Could not run 'aten::|not implemented for '|Low precision dtypes not supported|is not supported on"
    r"|Unsupported dtype \w+|unsupported ScalarType|cuFFT only supports dimensions"
    r"|must be either (?:a floating|float or double)|only supports? floating|Expected a floating point|does not support bool"
    r"|(?:inputs to be|only supported for) Half, Float (?:and|or) Double",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:not implemented for '|[Uu]nsupported (?:dtype|ScalarType) |tensors? but got |of scalar type: |Got: )(\w+)"
)
_SIZES = re.compile(r"got a signal size of *\[([\d, ]+)\]")
_OTHER_NAMES = {"Byte": torch.uint8, "Char": torch.int8, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128}
_MOST_NODES = 4
"""Nodes between a sigmoid and the loss, such as a view or a cast."""


# Indices, class targets and masks.


def handle_index(call: FailedCall) -> Any:
    """Repair by casting the index to int64, the mask to bool."""
    text, named = message(call.error), dict(arguments(call.func, call.args, call.kwargs))
    mask = named.get("attn_mask")
    has_integer_mask = mask is not None and not mask.is_floating_point()
    if _MASK.search(text) or ("Expected attn_mask dtype" in text and has_integer_mask):
        wanted = torch.bool
    elif _INDEX.search(text):
        wanted = torch.int64
    else:
        return NOT_OURS
    others = {name: tensor for name, tensor in named.items() if tensor.dtype != wanted}
    strays = [tensor for name, tensor in others.items() if name.partition("[")[0] in _INDEX_NAMES]
    strays = strays or [tensor for tensor in others.values() if not is_parameter(tensor)]
    if len(strays) != 1:
        return NOT_OURS
    out = call.again_changing(strays, lambda tensor: tensor.to(wanted))
    detail = WrongDtype(format_dtype(wanted), has_gradient=strays[0].requires_grad)
    call.report("dtype", strays, strays[0].device, out, detail)
    return out


def _is_about_indices(text: str) -> bool:
    return _INDEX.search(text) is not None or _MASK.search(text) is not None


# Kernels.


def handle_missing_kernel(call: FailedCall) -> Any:
    """Repair by running on the CPU in full precision and moving the results back."""
    text, tensors = message(call.error), call.tensors()
    if not _NO_KERNEL.search(text) or _is_about_indices(text):
        return NOT_OURS
    lacking = _find_lacking(tensors, text)
    if lacking is not None and not lacking.is_floating_point and _dtypes(tensors):
        return NOT_OURS  # dtypes that do not mix
    concerned = [tensor for tensor in tensors if tensor.dtype == lacking]
    if not concerned:  # one that no longer exists was computed from those that do
        concerned = [tensor for tensor in tensors if is_accelerator(tensor.device)]
    if not concerned:
        return NOT_OURS
    home = concerned[0].device
    out = call.again_changing(tensors, lambda tensor: _widen(tensor, lacking).cpu())
    if out is not NOT_OURS:
        with call.state.tracker.set_cause("healed"):
            out = replace_tensors(out, lambda tensor: _narrow(tensor, lacking).to(home))
    dtype, sizes = "", tuple[int, ...]()
    if lacking is not None:
        dtype = format_dtype(lacking)
    if found := _SIZES.search(text):
        sizes = tuple(map(int, found[1].split(",")))
    has_parts = hasattr(torch.return_types, call.name)  # `values, vectors`
    call.report("kernel", concerned, home, out, NoKernel(dtype, sizes, has_parts))
    return out


def lacking_dtype(text: str) -> torch.dtype | None:
    """Return the dtype that has no kernel, by its name in a message."""
    named = _NAMED.search(text)
    if named is None or not _NO_KERNEL.search(text):
        return None
    # The messages say `Half` or `Long`.
    found = _OTHER_NAMES.get(named[1], getattr(torch, named[1].lower(), None))
    if isinstance(found, torch.dtype):
        return found
    return None


def _find_lacking(tensors: list[torch.Tensor], text: str) -> torch.dtype | None:
    """Return the dtype that has no kernel: the one in the message, else a low precision among the operands."""
    if _SIZES.search(text):
        return torch.float16
    named = lacking_dtype(text)
    if named is not None:
        return named
    says_floats = "float" in text or "bool" in text  # no low precision either, or only integers
    kinds = [_is_low]
    if says_floats:
        kinds.append(_is_integer)
    for is_sought in kinds:
        for tensor in tensors:
            if is_sought(tensor):
                return tensor.dtype
    return None


def _is_low(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _LOW


def _is_integer(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def _widen(tensor: torch.Tensor, lacking: torch.dtype | None) -> torch.Tensor:
    if tensor.dtype == lacking and not tensor.is_complex():
        return tensor.float()
    return tensor


def _narrow(tensor: torch.Tensor, lacking: torch.dtype | None) -> torch.Tensor:
    if lacking in _LOW and tensor.dtype == torch.float32:
        return tensor.to(lacking)
    return tensor


# Floating-point dtypes that do not mix.


def handle_mixed_dtypes(call: FailedCall) -> Any:
    """Repair by casting to the dtype of the layer's parameters, else to the dtype of the other operands."""
    text, floats = message(call.error), list(filter(_is_float, call.tensors()))
    if floats and "without overflow" in text:
        return _fit_number(call, floats[0])
    if is_module(call.func):  # a recurrent layer checks its input itself
        floats += own_parameters(call.func).values()
    integer = _find_integer(call, floats)
    if integer is not None:
        wanted, strays = floats[0].dtype, [integer]
    elif len({*_dtypes(floats)}) > 1 and _DTYPE_WORDS.search(text) and not _is_about_indices(text):
        wanted = _find_wanted(call, floats)
        strays = [tensor for tensor in floats if tensor.dtype != wanted]
    else:
        return NOT_OURS
    out = call.again_changing(strays, lambda tensor: tensor.to(wanted))
    backward = _hand_written_backward(call.frame)
    detail = WrongDtype(
        format_dtype(wanted),
        autocast=_find_region(call, floats, backward),
        backward=definition_site(backward.f_code) if backward is not None else None,
    )
    call.report("dtype", strays, floats[0].device, out, detail)
    return out


def _find_integer(call: FailedCall, floats: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the one operand of integers or bools among floats of one dtype, where the message is about that."""
    if len({*_dtypes(floats)}) != 1 or is_inplace(call.name) or not _INTEGER_WORDS.search(message(call.error)):
        return None
    integers = list(filter(_is_integer, call.tensors()))
    if len(integers) == 1:
        return integers[0]
    return None


def _find_region(call: FailedCall, floats: list[torch.Tensor], backward: FrameType | None) -> AutocastRegion | None:
    """Return the autocast region that made an operand low precision, or one around the call that is for another device."""
    frames = list(user_frames(call.frame))
    around = region_around(frames)
    if around is not None and around.device not in ("", floats[0].device.type):
        return around
    computed = [tensor for tensor in floats if not is_parameter(tensor)]
    low = next(filter(_is_low, computed), None)
    if low is None:
        return None
    if backward is not None:
        return region_before(frames)
    names = operand_names.Names(call.state, call.frame)
    birth = names.describe_stray(low, "", "", low.device, "dtype").birth
    if birth is None or any(word in birth.text for word in ("half", "float16", "dtype")):  # a cast
        return None
    return region_around(frames, birth)


def _fit_number(call: FailedCall, tensor: torch.Tensor) -> Any:
    """Repair a number that the dtype cannot hold with the nearest one that it can."""
    limits = torch.finfo(tensor.dtype)

    def fit(value: Any) -> Any:
        if is_exactly(value, (int, float)):
            return max(limits.min, min(limits.max, value))
        return value

    out = call.again(fit)
    call.report("dtype", [tensor], tensor.device, out, WrongDtype(format_dtype(tensor.dtype), is_constant=True))
    return out


def _find_wanted(call: FailedCall, floats: list[torch.Tensor]) -> torch.dtype:
    """Return the dtype of a parameter operand, of the running module or of all its submodules; else the widest except
    float64."""
    met = {*_dtypes(floats)}
    for dtype in _dtypes_asked_for(call, floats):
        if dtype in met:
            return dtype
    return min(met, key=lambda dtype: (dtype == torch.float64, -dtype.itemsize))


def _dtypes_asked_for(call: FailedCall, floats: list[torch.Tensor]) -> Iterator[torch.dtype]:
    """Yield the dtypes of incoming gradients, then of parameters."""
    backward = _hand_written_backward(call.frame)
    if backward is not None:  # they have the dtype of the outputs, whatever `forward` saved
        code, variables = backward.f_code, locals_of(backward)
        names = code.co_varnames[1 : code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS)]
        incoming = {*_dtypes(tensors_in([variables.get(name) for name in names]))}
        if len(incoming) == 1:
            yield from incoming
    yield from _dtypes(filter(is_parameter, floats))
    module = call.state.tracker.running
    if module is not None:
        yield from _dtypes(own_parameters(module).values())
        below = {dtype for part in modules_in(module) for dtype in _dtypes(own_parameters(part).values())}
        if len(below) == 1:
            yield from below


def _hand_written_backward(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the user's `backward` that runs, whose first argument is the context."""
    for each in user_frames(frame):
        arguments = list(locals_of(each).values())[: each.f_code.co_argcount]
        if arguments and is_a(arguments[0], torch.autograd.function.BackwardCFunction):
            return each
    return None


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def _dtypes(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    """Return the floating-point dtypes of tensors."""
    return [tensor.dtype for tensor in filter(_is_float, tensors)]


# Losses that autocast refuses, because their gradient may not fit into float16.


def handle_unsafe_loss(call: FailedCall) -> Any:
    """Repair by computing the loss in float32 outside of autocast."""
    tensors = list(filter(_is_float, call.tensors()))
    if not tensors or "unsafe to autocast" not in message(call.error):
        return NOT_OURS
    with torch.autocast(tensors[0].device.type, enabled=False):
        out = call.again_changing(tensors, lambda tensor: tensor.float())
    detail = UnsafeLoss(_is_sigmoid(tensors[0]), region_around(user_frames(call.frame)))
    call.report("dtype", tensors[:1], tensors[0].device, out, detail)
    return out


def _is_sigmoid(tensor: torch.Tensor) -> bool:
    """Return whether the graph of a tensor ends in a sigmoid, apart from views and casts."""
    node = node_of(tensor)
    for _ in range(_MOST_NODES):
        if node is None or len(node.next_functions) != 1:
            return False
        if node.name().startswith("Sigmoid"):
            return True
        node = node.next_functions[0][0]
    return False


# Autocast regions, from the source around the lines of living frames and of the creation of a tensor.


_Region = tuple[ast.With | ast.AsyncWith | Function, ast.expr]
"""A block or a function that runs in autocast, and the expression that says so."""
_KIND = re.compile(rf"\b(?:cpu|{'|'.join(KINDS)})\b")


def region_around(frames: Iterable[FrameType], site: Site | None = None) -> AutocastRegion | None:
    """Return the innermost region that living frames are in; of a line of one of their files, if a `site` is given.

    The function of that line may have returned.
    """
    for frame in frames:
        line = frame.f_lineno
        if site is not None:
            line = site.line
            if site.file != frame.f_code.co_filename:
                continue
        around = [region for region in _regions(frame) if region[0].body[0].lineno <= line <= (region[0].end_lineno or 0)]
        if around:
            return _describe(frame, around[-1])
    return None


def region_before(frames: Sequence[FrameType]) -> AutocastRegion | None:
    """Return the region that a step has left: the last one above a living frame's line, else the only one of the files."""
    found = dict[ast.AST, AutocastRegion]()
    for frame in frames:
        functions = read_file(frame.f_code.co_filename).functions_around(frame.f_lineno)
        first = functions[0].lineno if functions else 0
        regions = list(_regions(frame))
        above = [region for region in regions if first <= region[0].lineno < frame.f_lineno]
        if above:
            return _describe(frame, above[-1])
        found |= {region[0]: _describe(frame, region) for region in regions}
    if len(found) == 1:
        return found.popitem()[1]
    return None


def _regions(frame: FrameType) -> Iterator[_Region]:
    scope = Scope(frame)
    for node in read_file(frame.f_code.co_filename).statements:
        expressions: list[ast.expr] = []
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                expressions = node.decorator_list
            case ast.With() | ast.AsyncWith():
                expressions = [item.context_expr for item in node.items]
            case _:
                continue
        for expression in expressions:
            if _is_autocast(expression, scope):
                yield node, expression


def _is_autocast(node: ast.expr, scope: Scope) -> bool:
    enabled = argument_named(node, "enabled")
    if enabled is not None and scope.value(enabled) is False:
        return False
    called = node.func if isinstance(node, ast.Call) else node
    return "autocast" in ast.unparse(called) or is_a(scope.value(node), torch.autocast)


def _describe(frame: FrameType, region: _Region) -> AutocastRegion:
    node, expression = region
    return AutocastRegion(
        site_at(frame.f_code.co_filename, node.lineno, frame.f_code.co_name), _device_type(expression, Scope(frame))
    )


def _device_type(node: ast.expr, scope: Scope) -> str:
    """Return the device type of `torch.autocast("cuda")` or `torch.cuda.amp.autocast()`; "" if it is not written there."""
    if isinstance(node, ast.Call):
        first = argument_named(node, "device_type") or next(iter(node.args), node.func)
        value = scope.value(first)
        if type(value) is DEVICE:
            return str(value.type)
        found = _KIND.search(value if type(value) is str else ast.unparse(node.func))
        if found is not None:
            return found[0]
        return ""
    value = scope.value(node)
    if is_a(value, torch.autocast):
        return str(value.device)
    return ""
