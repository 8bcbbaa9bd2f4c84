"""Random generators: the global ones of this process, and those that a model owns."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import awake_module
from devwidget.capture.restore.undoing import Step


class GeneratorKind(NamedTuple):
    """How the state of a type of generator is read and set."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]


_PYTHON = GeneratorKind(random.Random.getstate, random.Random.setstate)
_TORCH = GeneratorKind(torch_internals.Generator.get_state, torch_internals.Generator.set_state)


def _set_bits(owner: Any, state: Any) -> None:
    owner.bit_generator.state = state


def generator_kind(kind: type) -> GeneratorKind | None:
    """How generators of a type are kept; None if it is none."""
    if issubclass(kind, torch_internals.Generator):
        return _TORCH
    if issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):  # that one has no state
        return _PYTHON
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    if issubclass(kind, numpy.Generator):
        return GeneratorKind(lambda owner: owner.bit_generator.state, _set_bits)
    if issubclass(kind, numpy.RandomState):
        return GeneratorKind(numpy.RandomState.get_state, numpy.RandomState.set_state)
    return None


def generator_step(owner: Any, kind: GeneratorKind) -> Step:
    """Undo of draws from one generator."""
    state = kind.read(owner)

    def put_back() -> None:
        kind.write(owner, state)

    return owner, put_back


def global_states() -> Iterator[Step]:
    """Undo of draws from the generators of Python, NumPy and torch on every device."""
    kept = random.getstate()
    yield "random", lambda: random.setstate(kept)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy_state = numpy.random.get_state()
        yield "numpy.random", lambda: numpy.random.set_state(numpy_state)
    cpu = torch.get_rng_state()
    yield "torch's random generator", lambda: torch.set_rng_state(cpu)
    module = awake_module()
    if module is not None:
        states = module.get_rng_state_all()
        yield "the GPUs' random generators", lambda: module.set_rng_state_all(states)
    if torch.backends.mps.is_available():
        mps = torch.mps.get_rng_state()
        yield "the random generator of mps", lambda: torch.mps.set_rng_state(mps)
