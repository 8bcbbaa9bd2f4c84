"""Which module runs in this thread, by path, DataParallel's replicas included."""

from __future__ import annotations

import threading
from typing import Any

from torch import nn

from devwidget.capture.patching.global_hooks import MODULE_BEGINS, MODULE_ENDS
from devwidget.capture.tensors import walk_modules
from devwidget.capture.undo import Undo


class CurrentModule:
    """Follows every module call while it is entered, by hooks that are global and so are on no module."""

    def __init__(self, model: nn.Module) -> None:
        self._paths = {id(module): path for path, module in walk_modules(model)}
        self._model = model  # ids are reused after deletion
        self._running = threading.local()
        self._undo = Undo()

    def __enter__(self) -> CurrentModule:
        MODULE_BEGINS.call_hook(self._enter_module, self._undo)
        MODULE_ENDS.call_hook(self._leave_module, self._undo)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._undo.run_steps()

    @property
    def path(self) -> str | None:
        """The innermost module running in this thread; None if there is none."""
        stack = self._thread_stack()
        return stack[-1][1] if stack else None

    def _thread_stack(self) -> list[tuple[nn.Module, str]]:
        if not hasattr(self._running, "stack"):
            self._running.stack = []
        stack: list[tuple[nn.Module, str]] = self._running.stack
        return stack

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        if self._thread_stack() or id(module) in self._paths:  # else another thread's own, which is not looked into
            self._thread_stack().append((module, self._path_of(module)))

    def _leave_module(self, module: nn.Module, *rest: Any) -> None:
        stack = self._thread_stack()
        while stack and stack.pop()[0] is not module:
            pass

    def _path_of(self, module: nn.Module) -> str:
        """Its path; a replica's is read from the replica that calls it."""
        known = self._paths.get(id(module))
        if known is not None:
            return known
        for caller, path in reversed(self._thread_stack()):
            for name, child in walk_modules(caller):
                if child is module:
                    return f"{path}.{name}" if path else name
        return ""
