"""One devwidget hook in each global table of torch, for all recordings.

torch iterates over these tables while it calls the hooks: adding or removing one per recording would break the step of another
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import Lock
from devwidget.capture.patching import registry
from devwidget.capture.undo import Undo

Hook = Callable[..., None]
OUR_KEY = -1
"""Key of our hook; torch counts from zero."""
_lock = Lock()


class HookTable(MutableMapping[int, Hook]):
    """Replaces a table of torch and has our hook at its end. torch's own table is never changed.

    Hooks that users register or remove meanwhile go to torch's own table, and their handles refer to this one: it must stay
    alive.

    Args:
        own: torch's table.
        hook: ours.
    """

    def __init__(self, own: MutableMapping[int, Hook], hook: Hook) -> None:
        self.own, self._hook = own, hook

    # Lists, and no views: who walks one is not disturbed when a hook comes or goes.

    def items(self) -> Any:
        """Return keys and hooks."""
        return [*self.own.items(), (OUR_KEY, self._hook)]

    def values(self) -> Any:
        """Return the hooks."""
        return [*self.own.values(), self._hook]

    def __iter__(self) -> Iterator[int]:
        return iter([*self.own, OUR_KEY])

    def __len__(self) -> int:
        return len(self.own) + 1

    def __getitem__(self, key: int) -> Hook:
        if key == OUR_KEY:
            return self._hook
        return self.own[key]

    def __setitem__(self, key: int, hook: Hook) -> None:
        self.own[key] = hook

    def __delitem__(self, key: int) -> None:
        del self.own[key]

    def clear(self) -> None:
        """Remove the hooks of other code."""
        self.own.clear()


class GlobalHook:
    """One table and the hooks that are called, the oldest first.

    Args:
        table: its name in `torch_internals`.
        flags: names of the tables that say how a hook is called; torch never walks them.
    """

    def __init__(self, table: str, *flags: str) -> None:
        self._name, self._flags = table, flags
        self._hooks: tuple[Hook, ...] = ()
        self._table: HookTable | None = None
        self._put_in = Undo()

    def __call__(self, *args: Any) -> None:
        """Call all hooks."""
        for hook in self._hooks:
            hook(*args)

    def call_hook(self, hook: Hook, undo: Undo) -> None:
        """Call a hook until it is undone."""
        undo.add_step(self._remove_hook, hook)
        self._add_hook(hook)

    @_lock
    def _add_hook(self, hook: Hook) -> None:
        if not self._hooks:
            self._put_in.run_steps()  # what an exception has left
            self._install_table()
        self._hooks = (*self._hooks, hook)

    @_lock
    def _remove_hook(self, hook: Hook) -> None:
        self._hooks = tuple(each for each in self._hooks if each is not hook)
        if not self._hooks:
            self._put_in.run_steps()

    def _install_table(self) -> None:
        for owner_of_flag, flag in map(torch_internals.find_target, self._flags):
            marked = vars(owner_of_flag)[flag]
            self._put_in.add_step(marked.pop, OUR_KEY, None)
            marked[OUR_KEY] = True
        own = self._find_own()
        if self._table is None or self._table.own is not own:
            self._table = HookTable(own, self)
        self._show_table(self._table, self._put_in)

    def put_aside(self, undo: Undo) -> None:
        """Restore torch's own table until it is undone."""
        self._show_table(self._find_own(), undo)

    def _show_table(self, table: Any, undo: Undo) -> None:
        undo.enter_context(registry.Patch(*torch_internals.find_target(self._name), value=table))

    def _find_own(self) -> Any:
        """Return torch's own table, even if ours is in its place: users' handles refer to it."""
        owner, name = torch_internals.find_target(self._name)
        table = vars(owner)[name]
        while isinstance(table, HookTable):
            table = table.own
        return table


MODULE_BEGINS = GlobalHook("global_forward_pre_hooks")
MODULE_ENDS = GlobalHook("global_forward_hooks", "hooks_with_kwargs", "hooks_always_called")
STEP_BEGINS = GlobalHook("step_pre_hooks")
STEP_ENDS = GlobalHook("step_post_hooks")
