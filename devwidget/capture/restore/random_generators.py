"""Random generators: the global ones of this process, and the ones that a model owns."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import awake_module
from devwidget.capture.restore.keepers import Keeper, Kept


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
