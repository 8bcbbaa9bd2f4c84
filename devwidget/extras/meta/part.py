"""What is done about values where tensors have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import EndedFunctionMode, FunctionMode
from devwidget.extras.meta import call, known_values, meta_kernels
from devwidget.extras.meta.known_values import needs_values
from devwidget.gpus.labels import META_DEVICE, inside
from devwidget.gpus.operators import SCHEMAS, VirtualMode, read_schema
from devwidget.gpus.parts import PARTS
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.state import Values
from devwidget.gpus.tensors import get_device_property
from devwidget.gpus.torch_internals import locate_name
from devwidget.gpus.virtual_machine import VirtualMachine
from devwidget.records.errors import message

_WITH_KEY = ("__getitem__", "__setitem__")


class WrittenIndices(FunctionMode):
    """A mode, because a `__getitem__` in Python on the class would make every tensor a sequence to C++ for good."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call any function of torch."""
        if getattr(func, "__name__", "") in _WITH_KEY:
            args = (args[0], _make_index_tensor(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))


def _make_index_tensor(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_make_index_tensor, key))
    is_array = hasattr(key, "__array__") and not isinstance(key, torch.Tensor) and getattr(key, "ndim", 0) > 0
    is_list = isinstance(key, list) and key and all(isinstance(part, (int, bool)) for part in key)
    return torch.as_tensor(key) if is_array or is_list else key


class _ModeWithoutValues(VirtualMode):
    """Runs every operator on meta."""

    def __init__(self) -> None:
        self._indices: list[WrittenIndices] = []

    def __enter__(self) -> Any:
        # A stack: `with self` in the handler above enters it again, and each exit takes out its own.
        self._indices.append(WrittenIndices())
        self._indices[-1].__enter__()
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        if self._indices:
            self._indices[-1].leave_mode()
            self._indices.pop()
        # `super` asks for the class, which may have ended.
        VirtualMode.__exit__(self, *exc_info)

    def switch_below(self, on: bool) -> None:
        """Switch the modes of indices off, or on again."""
        for each in self._indices:
            each.__class__ = WrittenIndices if on else _IndicesAtRest  # type: ignore[assignment]

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator without values; raise SimulationError if it needs them."""
        # Many meta kernels are Python that asks tensors for their device: they must see the real one.
        inside.depth += 1
        try:
            schema, _ = SCHEMAS.get(id(func)) or read_schema(func)
            if schema.passive:
                return call.call_operator(func, args, kwargs)
            return VirtualMode.__torch_dispatch__(self, func, args, kwargs)  # `super` asks for the class, which may have ended
        except (RuntimeError, NotImplementedError) as error:
            if _is_about_values(error):
                raise needs_values(f"`{func}`") from error
            raise
        finally:
            inside.depth -= 1


class _IndicesAtRest(FunctionMode):
    """The one for indices, of a thread that has outlived its simulation."""

    __torch_function__ = EndedFunctionMode.__torch_function__


def _is_about_values(error: Exception) -> bool:
    text = message(error).lower()
    # What CUDA says too, of tensors that the user put on meta.
    rightful = ("expected device meta", "cannot copy out of meta")
    return "meta" in text and not any(words in text for words in rightful)


def _install_without_values(patches: Patches, machine: VirtualMachine) -> None:
    if machine.compute:
        return
    patches.set(torch.Tensor, "is_meta", property(is_meta))
    patches.wrap(*locate_name("printed_tensor"), show_contents)
    patches.set(*locate_name("validate_distributions"), False)


def is_meta(self: torch.Tensor) -> bool:
    """Whether the user put it on meta."""
    return get_device_property(self) == META_DEVICE


@replacing
def show_contents(original: Callable[..., str], self: torch.Tensor, indent: int) -> str:
    """What `repr` shows of a tensor without values."""
    if known_values.is_unknown(self):
        return f"..., size={tuple(self.shape)}"
    return original(known_values.read_values(self), indent)


PARTS.unknown_values = Values(
    mode=_ModeWithoutValues,
    call_operator=call.call_operator,
    call_factory=call.call_factory,
    read_values=known_values.read_values,
    read_numbers=known_values.read_numbers,
    list_numbers=known_values.list_numbers,
    check_known=known_values.check_known,
    strip_values=known_values.strip_values,
    forget_values=known_values.forget_values,
    copy_known=known_values.copy_known,
    run_attention=meta_kernels.run_attention,
)
PARTS.installs.append(_install_without_values)
