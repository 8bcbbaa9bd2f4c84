"""One hook of ours in each global table of torch, for all recordings.

torch walks these tables while it calls the hooks: one that came or went with each recording would break the step of
another thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from devwidget.capture import torch_internals
from devwidget.capture.patching.lock import Lock
from devwidget.capture.undo import Undo

Hook = Callable[..., None]
_lock = Lock()


class GlobalHook:
    """One table: who is to be called, the oldest first.

    Args:
        register: puts a hook into the table, and returns torch's handle.
        tidy: removes what torch forgets, given the handle's id.
    """

    def __init__(self, register: Callable[[Hook], Any], tidy: Callable[[int], object] = lambda number: None) -> None:
        self._register, self._tidy = register, tidy
        self._hooks: tuple[Hook, ...] = ()
        self._handle: Any = None

    def __call__(self, *args: Any) -> None:
        """Call everybody."""
        for hook in self._hooks:
            hook(*args)

    def call(self, hook: Hook, undo: Undo) -> None:
        """Have a hook called, until that is undone."""
        undo.add(self._forget, hook)
        self._remember(hook)

    @_lock
    def _remember(self, hook: Hook) -> None:
        self._hooks = (*self._hooks, hook)
        if self._handle is None:
            self._handle = self._register(self)

    @_lock
    def _forget(self, hook: Hook) -> None:
        self._hooks = tuple(each for each in self._hooks if each is not hook)
        if not self._hooks and self._handle is not None:
            self._handle.remove()
            self._tidy(self._handle.id)
            self._handle = None


MODULE_BEGINS = GlobalHook(modules.register_module_forward_pre_hook)
MODULE_ENDS = GlobalHook(
    functools.partial(modules.register_module_forward_hook, with_kwargs=True, always_call=True),
    lambda number: torch_internals.hooks_with_kwargs.pop(number, None),  # torch 2.13 forgets this table
)
STEP_BEGINS = GlobalHook(optimizers.register_optimizer_step_pre_hook)
STEP_ENDS = GlobalHook(optimizers.register_optimizer_step_post_hook)
