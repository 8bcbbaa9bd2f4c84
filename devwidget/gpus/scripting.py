"""Compiled code: functions run as they were written, and a compiled module is refused, for C++ cannot know virtual GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patches.compiled import eager_originals
from devwidget.capture.patches.higher_order import higher_order
from devwidget.gpus import labels
from devwidget.gpus.patching import Patches, replaces
from devwidget.gpus.torch_internals import ScriptFunction, ScriptMethod, locate_name, tree_leaves
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message


def install_scripting(patches: Patches) -> None:
    """Check what compiled programs are given; run compiled functions as they were written until the simulation ends."""
    eager_originals(lambda note: None, patches.undo)
    higher_order(None, patches.undo)
    # Not by the registry: their metaclass takes names by `setattr` alone.
    for kind in (ScriptFunction, ScriptMethod):
        patches.undo.add_step(setattr, kind, "__call__", kind.__call__)
        kind.__call__ = _wrap_call(kind.__call__)


@replaces(*locate_name("find_builtin"))
def _look_behind_patches(original: Callable[[Any], Any], fn: Any) -> Any:
    found = original(fn)
    while found is None and hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
        found = original(fn)
    return found


def _wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function runs as it was written, where torch has kept it; a compiled program takes no tensors on GPUs."""

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
