"""Compare checkpoint keys with and without DataParallel's prefix in `load_state_dict`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch import nn

from devwidget.capture.faults import operand_names
from devwidget.capture.object_fields import class_name, items_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.tensors import named_tensors
from devwidget.capture.undo import Undo
from devwidget.records.fault_details import WrongPrefix


def watch_checkpoints(state: RecordingState, undo: Undo) -> None:
    """Remember where keys come from, and compare them before they are loaded."""
    state.listen(nn.Module, "load_state_dict", functools.partial(_check_loading, state), undo)
    state.listen(nn.Module, "state_dict", functools.partial(_note_saving, state), undo)


def _check_loading(
    state: RecordingState, original: Callable[..., Any], self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any
) -> Any:
    # A mapping of another class may compute its entries, and has none here.
    entries = {key: value for key, value in items_of(state_dict) or () if type(key) is str}
    names = find_misnamed(self, entries)
    if names:
        report_misnamed(state, self, state_dict, names, sys._getframe(1))
        if state.heal:
            state_dict = {names.get(key, key): value for key, value in entries.items()}
    return original(self, state_dict, *args, **kwargs)


def _note_saving(state: RecordingState, original: Callable[..., Any], self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    out = original(self, *args, **kwargs)
    if not args and "destination" not in kwargs:  # with one a module above is being saved
        state.saved[out] = raw_site(sys._getframe(1))
    return out


def _strip_prefix(key: str) -> str:
    return ".".join(part for part in key.split(".") if part != "module")


def find_misnamed(module: nn.Module, given: dict[str, Any]) -> dict[str, str]:
    """Return keys that differ from a tensor's name only by the prefix, with the right names."""
    if not given:
        return {}
    own = {name for name, _ in (*named_tensors(module, "_parameters"), *named_tensors(module, "_buffers"))}
    missing = {_strip_prefix(name): name for name in own if name not in given}
    found = {}
    for key in given:
        expected = missing.get(_strip_prefix(key))
        if key not in own and expected is not None:
            found[key] = expected
    return found


def report_misnamed(state: RecordingState, module: nn.Module, given: Any, names: dict[str, str], frame: Any) -> None:
    """Record a checkpoint whose keys have the wrong prefix; `frame` requested the load."""
    found = operand_names.Names(state, frame)
    expression, birth = found.argument_of(given)
    birth = birth or (to_site(state.saved[given]) if given in state.saved else None)
    key, right = next(iter(names.items()))
    state.report_fault(
        "checkpoint",
        "load_state_dict",
        raw_site(frame),
        healed=state.heal,
        expression=expression,
        birth=birth,
        model_name=found.model_name(),
        detail=WrongPrefix(class_name(type(module)), key, right, len(names), len(items_of(given) or ())),
    )
