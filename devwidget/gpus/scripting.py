"""Compiled code: TorchScript calls torch's own operators, and C++ answers what it asks of a device; other code runs eagerly."""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.capture.patches.compiled import eager_originals
from devwidget.capture.patches.higher_order import higher_order
from devwidget.gpus import labels, machine
from devwidget.gpus.labels import TEMPORARY
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.torch_internals import RecursiveScriptModule, ScriptFunction, ScriptMethod, locate_name, tree_leaves
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message

PLACES = "devwidget_places"
"""The file of a saved program that says where its tensors were."""


def install_scripting(patches: Patches) -> None:
    """Have the compiler find the operators behind what stands in their place, and the mode know whose factories it sees."""
    patches.wrap(*locate_name("find_builtin"), look_behind_patches)
    # Traced modules have copies of the methods.
    for owner in (torch.jit.ScriptModule, RecursiveScriptModule):
        for name in ("save", "save_to_buffer"):
            patches.wrap(owner, name, save_places)
    patches.wrap(torch.jit, "load", restore_places)
    # Not by the registry: their metaclass takes names by `setattr` alone.
    for kind in (ScriptFunction, ScriptMethod):
        patches.undo.add_step(setattr, kind, "__call__", kind.__call__)
        kind.__call__ = wrap_call(kind.__call__)


@replacing
def save_places(
    original: Callable[..., Any], self: Any, *args: Any, _extra_files: dict[str, Any] | None = None, **kwargs: Any
) -> Any:
    """Writing a module to a file, with the GPUs of its tensors beside it: C++ writes down where they really are."""
    places = {name: labels.label_of(tensor) for name, tensor in _named_tensors(self)}
    files = {**(_extra_files or {}), PLACES: json.dumps(places)}
    return original(self, *args, _extra_files=files, **kwargs)


@replacing
def restore_places(
    original: Callable[..., Any], f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **kwargs: Any
) -> Any:
    """Reading a module from a file, back to the GPUs that it was on unless `map_location` says otherwise."""
    files = {} if _extra_files is None else _extra_files
    files[PLACES] = ""
    module = original(f, map_location, files, **kwargs)
    places = json.loads(files.pop(PLACES) or "{}")
    for name, tensor in _named_tensors(module) if map_location is None else ():
        if (label := places.get(name, labels.CPU)) >= 0:
            labels.put_label(tensor, machine.check_index(label))
    return module


def _named_tensors(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


@replacing
def look_behind_patches(original: Callable[[Any], Any], fn: Any) -> Any:
    """The operator that a function of torch is, for the compiler."""
    found = original(fn)
    while found is None and hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
        found = original(fn)
    return found


def wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a compiled program; a function that needs the true devices of its tensors runs as it was written."""

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if operation := find_device_operation(self):
            # The Python function that was compiled, where torch has kept it.
            written = getattr(self, "_torchdynamo_inline", None)
            if written is not None:
                return written(*args, **kwargs)
            refuse_operation(operation, (args, kwargs))
        labels.inside.script += 1
        try:
            result = original(self, *args, **kwargs)
        finally:
            labels.inside.script -= 1
        place_results(result, (args, kwargs))
        return result

    return __call__


BY_DEVICE = "aten::cuda aten::cpu aten::xpu aten::type_as aten::get_device aten::pin_memory aten::is_pinned".split()
MOVING = "aten::to aten::_to_copy aten::tensor".split()
"""Where they are told a device, or another tensor."""
PROPERTY = "prim::is_"
"""`x.is_cuda` and its kin."""
# Weak, so that asking once does not keep a program and its weights for good.
_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def find_device_operation(program: Any) -> str:
    """The first operation of a compiled program that needs the true device; an empty text if there is none."""
    if program not in _known:
        _known[program] = next(_find_needing(program.inlined_graph), "")
    return _known[program]


def _find_needing(block: Any) -> Iterator[str]:
    for node in block.nodes():
        for inner in node.blocks():
            yield from _find_needing(inner)
        if _needs_device(node):
            yield node.kind()


def _needs_device(node: Any) -> bool:
    kind = node.kind()
    # Factories may have it: what they make goes where its partners are.
    if kind == "prim::device":
        return not all(_is_factory(use.user) for use in node.output().uses())
    if kind in MOVING:
        types = [str(each.type()) for each in node.inputs()]
        return "Device" in types or types.count("Tensor") > 1
    return kind in BY_DEVICE or kind.startswith(PROPERTY)


def _is_factory(node: Any) -> bool:
    return "Device? device" in node.schema() and node.kind() not in (*MOVING, *BY_DEVICE)


def refuse_operation(operation: str, given: Any) -> None:
    """Say that a compiled program cannot have a true answer.

    Raises:
        SimulationError: if it was given a tensor on a GPU.
    """
    if _gpus_of(given):
        raise SimulationError(
            Message("`{operation}` in a compiled module cannot know virtual GPUs", operation=operation),
            why=Message("TorchScript asks C++ where a tensor is, and there it is on the CPU"),
            instead=Message("the module as it was before torch.jit.script or torch.jit.trace"),
        )


def place_results(results: Any, given: Any) -> None:
    """Tensors that a program has made where one of its own is are on the GPU of what it was given."""
    gpus = _gpus_of(given)
    for tensor in tree_leaves(results) if len(gpus) == 1 else ():
        if isinstance(tensor, torch.Tensor) and labels.label_of(tensor) == TEMPORARY:
            labels.put_label(tensor, *gpus)


def _gpus_of(given: Any) -> set[int]:
    found = {labels.label_of(each) for each in tree_leaves(given) if isinstance(each, torch.Tensor)}
    return {label for label in found if label >= 0}


def install_eager_originals(patches: Patches) -> None:
    """Until the simulation ends."""
    eager_originals(lambda note: None, patches.undo)
    higher_order(None, patches.undo)
