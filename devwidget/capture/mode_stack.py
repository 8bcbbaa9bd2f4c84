"""Torch function modes that stay on the stack beyond one `with` block."""

from __future__ import annotations

from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode


def take_out(mode: TorchFunctionMode) -> None:
    """End a mode, also below one that stays, such as that of `torch.set_default_device`; nothing if it is not there."""
    if mode not in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
        return
    above = []
    while (top := _pop_mode()) is not mode:  # type: ignore[no-untyped-call]
        above.append(top)
    for each in reversed(above):
        _push_mode(each)  # type: ignore[no-untyped-call]
