"""Watch: what one step does outside of what is put back, seen while it is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.capture import torch_internals
from devwidget.capture.restore import SavedState
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message
from devwidget.trying.outside.own_threads import OwnThreads
from devwidget.trying.outside.reachable_state import ReachableState
from devwidget.trying.outside.watched_calls import watch_calls


class Watch:
    """Around a step and its being put back; `begin` comes between.

    Attributes:
        own: threads that work for the step; each of them is to enter it.
        effects: sentences on what the step has left, each once; complete after the block.
    """

    def __init__(self) -> None:
        self.own, self.effects = OwnThreads(), tuple[str, ...]()
        self._seen: dict[str, None] = {}
        self._undo = Undo()
        self._state: ReachableState | None = None

    def begin(self, kept: SavedState) -> None:
        """The step begins; what it works on is kept."""
        self._state = ReachableState(kept)
        watch_calls(self.own, self._see, self._undo)

    def _see(self, words: str) -> None:
        self._seen.setdefault(words)

    def __enter__(self) -> Watch:
        switch, state = torch_internals.set_function_state, torch_internals.function_state
        if switch is not None and state is not None:  # our looking is hidden from function modes: it may be cut short
            self._undo.add_step(switch, state())
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._undo:
            self.effects = (*self._seen, *dict.fromkeys(self._changed()))
        self._state = None

    def _changed(self) -> Iterator[str]:
        for name in self._state.changed() if self._state is not None else ():
            yield Message("the step changed `{name}`", name=name)
