"""What a step may change for the whole process: settings of torch and Python, such as modes, and random generators."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import awake_module, set_default_device
from devwidget.capture.restore.keepers import Keeper, Kept
from devwidget.records.device import KINDS

FLAGS = (
    "cublas_allow_bf16_reduced_precision_reduction", "cublas_allow_fp16_reduced_precision_reduction", "cublas_allow_tf32",
    "cudnn_allow_tf32", "cudnn_benchmark", "cudnn_deterministic", "cudnn_enabled", "float32_matmul_precision",
)  # fmt: skip
"""Flags of `torch.backends` and others. Read in C++: the Python properties warn, and refuse to be set when frozen."""
PRECISIONS = (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))
"""Backends and operations whose float32 may use fewer bits. General ones come first."""
NOT_ELSEWHERE = "current GPU", "number of threads"
_held: list[Any] = []
"""Ends an inference mode that was left on. The mode would return when its object is freed."""
_GONE, _REFUSED = object(), object()


class Switch(NamedTuple):
    """One setting and its name."""

    word: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]

    def keep(self) -> Kept:
        """Return its value, to be restored."""
        return Kept(self.word, self.read(), Keeper(self._read_again, lambda _, value: self.write(value), _same_values))

    def _read_again(self, _: object) -> Any:
        try:
            return self.read()
        except (AttributeError, KeyError):  # virtual GPUs have ended meanwhile
            return _GONE
        except Exception:  # torch refuses to read it, because it conflicts with others
            return _REFUSED


def _same_values(now: Any, before: Any) -> bool:
    return now is _GONE or bool(now == before)


def keep_settings() -> list[Kept]:
    """Return all settings that have a value. The first ones are needed to undo the others."""
    kept = []
    for switch in (*_list_switches(), Switch("depth of autocast", autocast_depth, _set_autocast_depth), *_list_pythons()):
        with contextlib.suppress(Exception):  # this build of torch does not tell, a folder is deleted
            kept.append(switch.keep())
    return kept


def switches_now() -> dict[str, Any]:
    """Return the state of the switches, for another process."""
    found = {}
    for word, read, _ in _list_switches():
        with contextlib.suppress(Exception):  # as above
            found[word] = read()
    return {word: value for word, value in found.items() if word not in NOT_ELSEWHERE}


def set_switches(values: dict[str, Any]) -> None:
    """Set the switches to their state in another process."""
    for word, read, write in _list_switches():
        if word in values and read() != values[word]:
            write(values[word])


@functools.cache
def _list_switches() -> tuple[Switch, ...]:
    """Return settings of torch that are numbers and texts, which can be sent to another process."""
    return (
        Switch("inference mode", torch.is_inference_mode_enabled, _set_inference),
        Switch("grad mode", torch.is_grad_enabled, torch_internals.set_grad_enabled),
        Switch("default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Switch("default device", _default_device, set_default_device),
        Switch("number of threads", torch.get_num_threads, torch.set_num_threads),
        Switch("deterministic algorithms", _read_deterministic, _set_deterministic),
        Switch("current GPU", _current_gpu, _set_current_gpu),
        *(Switch(f"autocast on {device}", *_pair_autocast(device)) for device in ("cpu", *KINDS)),
        *(Switch(name, *_pair_functions(f"_get_{name}", f"_set_{name}")) for name in FLAGS),
        # Last: each sets the flags of old with it, which may refuse to be read then.
        *(Switch(f"precision of {' '.join(which)}", *_pair_functions(*torch_internals.PRECISION_PAIR, *which))
          for which in PRECISIONS),
    )  # fmt: skip


def _list_pythons() -> tuple[Switch, ...]:
    """Return settings of Python. Another list of warning filters belongs to a block, maybe of another thread, which ends by
    itself."""
    filters: Any = warnings.filters

    def set_filters(kept: list[Any]) -> None:
        if warnings.filters is filters:
            filters[:] = kept  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]

    return (
        Switch("current folder", os.getcwd, os.chdir),
        Switch("sys.path", lambda: list(sys.path), lambda kept: sys.path.__setitem__(slice(None), kept)),
        Switch("warning filters", lambda: list(filters), set_filters),
    )


def autocast_depth() -> int:
    """Return the autocast depth. Casts are cached until the outermost region ends."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def leave_autocast() -> None:
    """Switch autocast off for all devices, as outside of every region. The saved settings restore it."""
    for device in ("cpu", *KINDS):
        if torch.is_autocast_enabled(device):
            torch.set_autocast_enabled(device, False)
    _set_autocast_depth(0)


def _set_autocast_depth(depth: int) -> None:
    while autocast_depth() > depth:
        torch.autocast_decrement_nesting()
    while autocast_depth() < depth:
        torch.autocast_increment_nesting()


def _pair_functions(read: str, write: str, *which: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the getter and setter of a setting in torch's C module, looked up at each call: not every build has them all."""

    def set_again(value: Any) -> None:
        getattr(torch_internals.C, write)(*which, *(value if type(value) is tuple else (value,)))

    return lambda: getattr(torch_internals.C, read)(*which), set_again


def _pair_autocast(device: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    def set_again(kept: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, kept[0])
        torch.set_autocast_dtype(device, kept[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), set_again


def _set_inference(mode: bool) -> None:
    guard: Any = torch_internals.InferenceMode(mode)
    guard.__enter__()
    _held.append(guard)


def _default_device() -> torch.device | None:
    """Return the default device. None differs from "cpu": it costs nothing."""
    context = getattr(torch_internals.default_device, "device_context", None)
    return None if context is None else context.device


def _read_deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(kept: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(kept[0], warn_only=kept[1])


def _current_gpu() -> int | None:
    module = awake_module()
    return None if module is None else module.current_device()


def _set_current_gpu(index: int | None) -> None:
    """Make a GPU the current one, unless GPUs were started or removed since."""
    module = awake_module()
    if module is not None and index is not None:
        module.set_device(index)


def _make_keeper(read: Callable[[Any], Any], write: Callable[[Any, Any], object]) -> Keeper:
    return Keeper(read, write, lambda now, before: False, is_random=True)


def _set_bits(owner: Any, state: Any) -> None:
    owner.bit_generator.state = state


_PYTHON = _make_keeper(random.Random.getstate, random.Random.setstate)
_TORCH = _make_keeper(torch_internals.Generator.get_state, torch_internals.Generator.set_state)
_BITS = _make_keeper(lambda owner: owner.bit_generator.state, _set_bits)


def generator_keeper(kind: type) -> Keeper | None:
    """Return how generators of a type are kept; None if it is not a generator."""
    if issubclass(kind, torch_internals.Generator):
        return _TORCH
    if issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):  # that one has no state
        return _PYTHON
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    if issubclass(kind, numpy.Generator):
        return _BITS
    if issubclass(kind, numpy.RandomState):
        return _make_keeper(numpy.RandomState.get_state, numpy.RandomState.set_state)
    return None


def global_states() -> Iterator[Kept]:
    """Yield the generators of Python, NumPy and torch on every device."""
    yield _keep_global("random", random.getstate, random.setstate)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield _keep_global("numpy.random", numpy.random.get_state, numpy.random.set_state)
    yield _keep_global("torch's random generator", torch.get_rng_state, torch.set_rng_state)
    module = awake_module()
    if module is not None:
        yield _keep_global("the GPUs' random generators", module.get_rng_state_all, module.set_rng_state_all)
    if torch.backends.mps.is_available():
        yield _keep_global("the random generator of mps", torch.mps.get_rng_state, torch.mps.set_rng_state)


def _keep_global(word: str, read: Callable[[], Any], write: Callable[[Any], object]) -> Kept:
    return Kept(word, read(), _make_keeper(lambda _: None, lambda _, state: write(state)))
