"""TorchScript: compiled programs call torch's own operators, and what they ask of a device is answered by C++."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.simulator.devices import labels, machine
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import RecursiveScriptModule, ScriptFunction, ScriptMethod, locate_name
from devwidget.simulator.torch_surface import scripted_devices

PLACES = "devwidget_places"
"""The file of a saved program that says where its tensors were."""


def install(patches: Patches) -> None:
    """Have the compiler find the operators behind what stands in their place, and the mode know whose factories it sees."""
    patches.wrap(*locate_name("find_builtin"), behind_patches)
    for owner in (torch.jit.ScriptModule, RecursiveScriptModule):  # traced modules have copies of the methods
        for name in ("save", "save_to_buffer"):
            patches.wrap(owner, name, saving)
    patches.wrap(torch.jit, "load", loading)
    for kind in (ScriptFunction, ScriptMethod):  # not by the registry: their metaclass takes names by `setattr` alone
        patches.undo.add(setattr, kind, "__call__", kind.__call__)
        kind.__call__ = scripted(kind.__call__)


def saving(original: Callable[..., Any]) -> Callable[..., Any]:
    """Writing a module to a file, with the GPUs of its tensors beside it: C++ writes down where they really are."""

    @functools.wraps(original)
    def save(self: Any, *args: Any, _extra_files: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        places = {name: labels.label_of(tensor) for name, tensor in _tensors(self)}
        files = {**(_extra_files or {}), PLACES: json.dumps(places)}
        return original(self, *args, _extra_files=files, **kwargs)

    return save


def loading(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reading a module from a file, back to the GPUs that it was on unless `map_location` says otherwise."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        files = {} if _extra_files is None else _extra_files
        files[PLACES] = ""
        module = original(f, map_location, files, **kwargs)
        places = json.loads(files.pop(PLACES) or "{}")
        for name, tensor in _tensors(module) if map_location is None else ():
            if (label := places.get(name, labels.CPU)) >= 0:
                labels.put_label(tensor, machine.check_index(label))
        return module

    return load


def _tensors(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def behind_patches(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The operator that a function of torch is, for the compiler."""

    @functools.wraps(original)
    def _find_builtin(fn: Any) -> Any:
        found = original(fn)
        while found is None and hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
            found = original(fn)
        return found

    return _find_builtin


def scripted(original: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a compiled program; a function that needs the true devices of its tensors runs as it was written."""

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if operation := scripted_devices.below_python(self):
            written = getattr(self, "_torchdynamo_inline", None)
            if written is not None:
                return written(*args, **kwargs)
            scripted_devices.refuse(operation, (args, kwargs))
        labels.inside.script += 1
        try:
            result = original(self, *args, **kwargs)
        finally:
            labels.inside.script -= 1
        scripted_devices.place(result, (args, kwargs))
        return result

    return __call__
