"""One hook of ours in each global table of torch, for all recordings.

torch walks these tables while it calls the hooks: one that came or went with each recording would break the step of
another thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from devwidget.capture import torch_internals

Hook = Callable[..., None]
_lock = threading.RLock()


class GlobalHook:
    """One table: who is to be called, the oldest first.

    Args:
        register: puts a hook into the table, and returns what removes it.
    """

    def __init__(self, register: Callable[[Hook], Callable[[], None]]) -> None:
        self._register = register
        self._hooks: tuple[Hook, ...] = ()
        self._remove: Callable[[], None] | None = None

    def __call__(self, *args: Any) -> None:
        """Call everybody."""
        for hook in self._hooks:
            hook(*args)

    @contextlib.contextmanager
    def calling(self, hook: Hook) -> Iterator[None]:
        """Have a hook called inside the block."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._forget, hook)
            with _lock:
                self._hooks = (*self._hooks, hook)
                if self._remove is None:
                    self._remove = self._register(self)
            yield

    def _forget(self, hook: Hook) -> None:
        with _lock:
            self._hooks = tuple(each for each in self._hooks if each is not hook)
            if not self._hooks and self._remove is not None:
                self._remove()
                self._remove = None


def _after_modules(hook: Hook) -> Callable[[], None]:
    handle = modules.register_module_forward_hook(hook, with_kwargs=True, always_call=True)

    def remove() -> None:
        handle.remove()
        torch_internals.hooks_with_kwargs.pop(handle.id, None)  # torch 2.13 forgets this table

    return remove


MODULE_BEGINS = GlobalHook(lambda hook: modules.register_module_forward_pre_hook(hook).remove)
MODULE_ENDS = GlobalHook(_after_modules)
STEP_BEGINS = GlobalHook(lambda hook: optimizers.register_optimizer_step_pre_hook(hook).remove)
STEP_ENDS = GlobalHook(lambda hook: optimizers.register_optimizer_step_post_hook(hook).remove)
