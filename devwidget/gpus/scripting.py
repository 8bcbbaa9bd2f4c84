"""Compiled code: functions run as they were written, and a compiled module is refused, for C++ cannot know virtual GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patches.compiled import eager_originals
from devwidget.capture.patches.higher_order import higher_order
from devwidget.gpus import labels
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.torch_internals import ScriptFunction, ScriptMethod, locate_name, tree_leaves
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message


def install_scripting(patches: Patches) -> None:
    """Have the compiler find the operators behind what stands in their place, and look at what compiled programs are given."""
    patches.wrap(*locate_name("find_builtin"), look_behind_patches)
    # Not by the registry: their metaclass takes names by `setattr` alone.
    for kind in (ScriptFunction, ScriptMethod):
        patches.undo.add_step(setattr, kind, "__call__", kind.__call__)
        kind.__call__ = wrap_call(kind.__call__)


@replacing
def look_behind_patches(original: Callable[[Any], Any], fn: Any) -> Any:
    """The operator that a function of torch is, for the compiler."""
    found = original(fn)
    while found is None and hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
        found = original(fn)
    return found


def wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a compiled program, on the CPU; a function runs as it was written, where torch has kept it.

    Raises:
        SimulationError: if a module was given a tensor on a GPU.
    """

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        written = getattr(self, "_torchdynamo_inline", None)
        if written is not None:
            return written(*args, **kwargs)
        if any(labels.label_of(each) >= 0 for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)):
            raise SimulationError(
                Message("a compiled TorchScript module cannot run on virtual GPUs"),
                why=Message("in C++ its tensors are on the CPU"),
                instead=Message("call the original module, without torch.jit.script or torch.jit.trace"),
            )
        return original(self, *args, **kwargs)

    return __call__


def install_eager_originals(patches: Patches) -> None:
    """Until the simulation ends."""
    eager_originals(lambda note: None, patches.undo)
    higher_order(None, patches.undo)
