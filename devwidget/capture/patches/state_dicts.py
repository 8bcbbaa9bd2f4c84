"""Checkpoints: keys with and without DataParallel's prefix that meet in `load_state_dict`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from devwidget.capture.faults import operand_names
from devwidget.capture.patching.registry import patched
from devwidget.capture.recording.descriptions import fault_at
from devwidget.capture.recording.state import State
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.undo import Undo


def checkpoints(state: State, undo: Undo) -> None:
    """Remember where keys come from, and compare them before they are loaded."""

    def loading(original: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(self: nn.Module, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
            names = {} if state.is_elsewhere() else misnamed(self, state_dict)
            if names:
                report(state, self, state_dict, names, sys._getframe(1))
                if state.heal:
                    state_dict = {names.get(key, key): value for key, value in state_dict.items()}
            return original(self, state_dict, *args, **kwargs)

        return load_state_dict

    def saving(original: Callable[..., Any]) -> Callable[..., Any]:
        def state_dict(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            out = original(self, *args, **kwargs)
            # With a destination a module above is being saved.
            if not args and "destination" not in kwargs and not state.is_elsewhere():
                state.saved[out] = raw_site(sys._getframe(1))
            return out

        return state_dict

    undo.enter(patched(nn.Module, "load_state_dict", loading))
    undo.enter(patched(nn.Module, "state_dict", saving))


def _plain(key: str) -> str:
    """A key without any `module.` of a wrapper."""
    return ".".join(part for part in key.split(".") if part != "module")


def misnamed(module: nn.Module, given: Mapping[Any, Any]) -> dict[str, str]:
    """Keys that name a tensor of the module but for the prefix, with the right names."""
    own = {name for name, _ in module.named_parameters()} | {name for name, _ in module.named_buffers()}
    missing = {_plain(name): name for name in own if name not in given}
    return {key: missing[_plain(key)] for key in given if isinstance(key, str) and key not in own and _plain(key) in missing}


def report(state: State, module: nn.Module, given: Mapping[str, Any], names: dict[str, str], frame: Any) -> None:
    """Write down a checkpoint whose names miss the module's by a prefix; `frame` asked for it to be loaded."""
    found = operand_names.Names(state, frame)
    expression, birth = found.argument_of(given)
    birth = birth or (to_site(state.saved[given]) if given in state.saved else None)
    key, right = next(iter(names.items()))
    state.log.fault(
        fault_at(
            state.tracker,
            "checkpoint",
            "load_state_dict",
            raw_site(frame),
            healed=state.heal,
            expression=expression,
            birth=birth,
            model_name=found.model_name(),
            facts=(
                ("count", str(len(names))),
                ("key", key),
                ("owner", type(module).__name__),
                ("right", right),
                ("total", str(len(given))),
            ),
        )
    )
