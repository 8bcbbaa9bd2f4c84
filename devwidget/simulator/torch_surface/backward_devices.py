"""The current GPU and stream while hooks of the user run in backward: those of what they are given, as in the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from devwidget.simulator.devices import labels, machine
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import TensorBase, locate_name
from devwidget.simulator.torch_surface import gradient_hooks

MARK = "devwidget: runs on its GPU"
_grad_fn: Any = TensorBase.grad_fn


def install(patches: Patches) -> None:
    """Replace what takes such hooks, but for those of tensors and modules, which are also checked."""
    patches.wrap(*locate_name("push_saved_hooks"), unpacked_there)
    patches.wrap(torch.Tensor, "register_post_accumulate_grad_hook", accumulated_there)
    patches.wrap(*locate_name("run_backward"), back_afterwards)
    patches.set(torch.Tensor, "grad_fn", property(run_there, None, None, _grad_fn.__doc__))


def run_there(self: torch.Tensor) -> Any:
    """`Tensor.grad_fn`, from now on run on its GPU and on the streams of this moment, for hooks that it may be given."""
    node: Any = _grad_fn.__get__(self)
    if node is not None and labels.label_of(self) >= 0 and MARK not in node.metadata:
        streams = node.metadata[MARK] = machine.current_streams()

        def go(gradients: tuple[Any, ...]) -> None:
            found = [labels.label_of(each) for each in gradients if isinstance(each, torch.Tensor)]
            if max(found, default=labels.CPU) >= 0:
                machine.restore_current(max(found), streams)

        node.register_prehook(go)
    return node


def back_afterwards(original: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass, after which GPU and streams are the caller's own again."""

    @functools.wraps(original)
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        before = machine.current_index(), machine.current_streams()
        try:
            return original(*args, **kwargs)
        finally:
            machine.restore_current(*before)

    return _engine_run_backward


def unpacked_there(original: Callable[..., None]) -> Callable[..., None]:
    """Hooks for saved tensors, non-reentrant checkpoints among them: unpacked on the GPU where they were packed."""

    @functools.wraps(original)
    def _push_saved_tensors_default_hooks(pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        def unpack(packed: tuple[int, Mapping[int, int], Any]) -> Any:
            gpu, streams, kept = packed
            return machine.call_on(gpu, streams, unpack_hook, kept)

        original(_Packing(pack_hook), unpack)

    return _push_saved_tensors_default_hooks


class _Packing:
    """A hook that packs; checkpoints know theirs by attributes, since torch 2.15."""

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self._hook = hook

    def __call__(self, tensor: torch.Tensor) -> tuple[int, Mapping[int, int], Any]:
        return labels.label_of(tensor), machine.current_streams(), self._hook(tensor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hook, name)


def accumulated_there(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks that run when a gradient is complete."""

    @functools.wraps(original)
    def register_post_accumulate_grad_hook(self: torch.Tensor, hook: Callable[[Any], None]) -> Any:
        streams = machine.current_streams()

        @functools.wraps(hook)
        def there(tensor: torch.Tensor) -> None:
            machine.call_on(labels.label_of(tensor), streams, hook, tensor)

        handle = original(self, there)
        gradient_hooks.remember(handle, there, hook)
        return handle

    return register_post_accumulate_grad_hook
