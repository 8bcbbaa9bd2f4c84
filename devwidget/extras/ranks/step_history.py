"""The last steps of a rank: when each ended, its settings, and optionally checksums of its parameters."""

from __future__ import annotations

import os
import platform
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import parts_of
from devwidget.capture.snapshot.optimizer_state import groups_of
from devwidget.capture.tensors import own, walk_modules
from devwidget.extras.ranks.rank_tensors import compute_checksums
from devwidget.extras.ranks.records.rank import Setting, StepSettings
from devwidget.records.errors import DevwidgetError, error_text

MOST_STEPS = 32
"""Number of recorded step ends, and of recorded runs of equal settings."""
_EARLY, _EACH = frozenset({1, 2, 4}), 64
"""Steps after which all modules are walked, the same on every rank, because only equal steps are comparable."""


class Summed(NamedTuple):
    """Path and checksum of parameters, and the step after which they were computed; -1 if they were not."""

    step: int
    checksums: tuple[tuple[str, str], ...]


class StepHistory:
    """Count the optimizer steps of this process, and keep the last ones.

    `note_step` runs on the training thread after each step; queries read from another thread.

    Args:
        checksums: Compute checksums of parameters that every rank has in full, which syncs with the GPU.

    Attributes:
        ends: The last steps with the time at which each ended.
        summed: Checksums after the newest step that has them; replaced as one object, so that readers see one state.
        fault: Why nothing more is recorded; "" if nothing failed.
    """

    def __init__(self, find_model: Callable[[], nn.Module | None], *, checksums: bool) -> None:
        self._find_model, self._checksums = find_model, checksums
        self._model: weakref.ref[nn.Module] | None = None
        self._counts: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self.ends: deque[tuple[int, float]] = deque(maxlen=MOST_STEPS)
        self._runs: deque[tuple[int, int, Raw, Setting | None]] = deque(maxlen=MOST_STEPS)
        self._modes: deque[StepSettings] = deque(maxlen=4)
        self.summed = Summed(-1, ())
        self.fault = ""

    def note_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Count and record an optimizer step; called by a hook after each."""
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if not self.fault:
            try:
                self._remember_step(self.count_steps())
            except Exception as error:
                # An optimizer of the user's that is like no other must not end the step.
                self.fault = error_text(error)

    def count_steps(self) -> int:
        """Return the largest number of steps of an optimizer."""
        return max(dict(self._counts).values(), default=0)

    def list_settings(self) -> tuple[StepSettings, ...]:
        """Return the settings of the last steps, and for some of them the modes of modules."""
        done = self.count_steps()  # a training that has begun anew has fewer than one before it, of which the rest is
        found = list(self._modes)
        for first, last, read, mode in list(self._runs):
            settings = list(word_optimizers(read))
            if mode is not None:
                settings.append(mode)
            found.append(StepSettings(first, last, tuple(settings)))
        return tuple(run for run in found if run.first <= done)

    def _remember_step(self, step: int) -> None:
        model = self._model() if self._model is not None else None
        if is_due(step):
            model = self._find_model()
        mode = None
        if model is not None:
            mode = Setting("mode", "", _word_mode(model))
        if self.ends and step < self.ends[-1][0]:
            # Another training: what was read of the modules of the last is no step of this one.
            self._modes.clear()
        self.ends.append((step, time.time()))
        self._extend_run(step, read_optimizers(list(self._counts)), mode)
        if model is not None and is_due(step):
            self._look_at(model, step)

    def _extend_run(self, step: int, read: Raw, mode: Setting | None) -> None:
        """Merge consecutive steps with equal settings; for a step with several optimizers keep the newest."""
        first = step
        if self._runs and self._runs[-1][1] >= step - 1:
            begun, last, before, mode_before = self._runs[-1]
            if (before, mode_before) == (read, mode):
                first = begun
                self._runs.pop()
            elif last == step:
                self._runs.pop()
                if begun < step:
                    self._runs.append((begun, step - 1, before, mode_before))
        self._runs.append((first, step, read, mode))

    def _look_at(self, model: nn.Module, step: int) -> None:
        self._model = weakref.ref(model)
        self._modes.append(StepSettings(step, step, (*read_modes(model), *read_policies(model))))
        if self._checksums:
            self.summed = Summed(step, compute_checksums(model))


def is_due(step: int) -> bool:
    """Return whether all modules are walked after a step."""
    return step in _EARLY or step % _EACH == 0


_PLAIN = frozenset({bool, int, float, str, type(None)})
_COUNTED = frozenset({"params", "param_names"})
"""Options of a group that differ between ranks with shards of a model."""


Raw = tuple[tuple[str, tuple[tuple[tuple[str, Any], ...], ...]], ...]
"""Class of each optimizer, and names and values of its groups, compared at each step."""


def read_optimizers(optimizers: Iterable[torch.optim.Optimizer]) -> Raw:
    """Return the class of each optimizer and the options of its groups, without tensors."""
    return tuple((type(each).__name__, tuple(map(_plain_values, groups_of(each)))) for each in optimizers)


def _plain_values(group: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    plain = [(name, value) for name, value in group.items() if _is_plain(value)]
    return tuple((name, value) for name, value in plain if name not in _COUNTED)


def _is_plain(value: object) -> bool:
    if type(value) in _PLAIN:
        return True
    return type(value) in (tuple, list) and all(type(part) in _PLAIN for part in parts_of(value))


def word_optimizers(read: Raw) -> Iterator[Setting]:
    """Yield them as settings: `optimizer`, `optimizer.groups`, `optimizer.lr`, `optimizer.groups[1].lr`."""
    for at, (class_name, groups) in enumerate(read):
        which = "optimizer"
        if len(read) > 1:
            which = f"optimizers[{at}]"
        yield Setting("optimizer", which, class_name)
        yield Setting("optimizer", f"{which}.groups", str(len(groups)))
        for number, group in enumerate(groups):
            where = which
            if len(groups) > 1:
                where = f"{which}.groups[{number}]"
            yield from (Setting("optimizer", f"{where}.{name}", repr(value)) for name, value in sorted(group))


def read_modes(model: nn.Module) -> Iterator[Setting]:
    """Yield whether the model is in training mode, and each module whose mode differs from its parent's."""
    modes: dict[str, str] = {}
    for path, module in walk_modules(model):
        modes[path] = _word_mode(module)
        if not path or modes[path] != _around(path, modes):
            yield Setting("mode", path, modes[path])


_OF_POLICY = ("param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs")


def read_policies(model: nn.Module) -> Iterator[Setting]:
    """Yield the mixed precision of each FSDP2 module whose policy differs from its parent's."""
    policies: dict[str, str] = {}
    if torch_internals.FSDP not in sys.modules:
        return
    for path, module in walk_modules(model):
        if (policy := _find_policy(module)) is None:
            continue
        around, name = _around(path, policies), f"mp_policy of {path}".removesuffix(" of ")
        policies[path] = ", ".join(
            f"{field}={str(getattr(policy, field, None)).removeprefix('torch.')}" for field in _OF_POLICY
        )
        if policies[path] != around:
            yield Setting("precision", name, policies[path])


def _find_policy(module: nn.Module) -> object:
    try:
        return getattr(torch_internals.fsdp_state_of(module), "_mp_policy", None)
    except DevwidgetError:
        # A torch that has no such state, or elsewhere.
        return None


def _word_mode(module: nn.Module) -> str:
    return "train" if own(module).get("training") is True else "eval"


def _around(path: str, known: Mapping[str, str]) -> str | None:
    """Return the value of the nearest ancestor of a path that has one."""
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            return known[path]
    return None


def list_fixed() -> Iterator[Setting]:
    """Yield settings that do not change during a run: precision, versions, variables, random seeds."""
    yield Setting("precision", "torch.get_default_dtype()", str(torch.get_default_dtype()).removeprefix("torch."))
    yield Setting("precision", "torch.get_float32_matmul_precision()", torch.get_float32_matmul_precision())
    deterministic = torch.are_deterministic_algorithms_enabled()
    yield Setting("precision", "torch.are_deterministic_algorithms_enabled()", str(deterministic))
    yield Setting("precision", "torch.backends.cudnn.allow_tf32", str(torch.backends.cudnn.allow_tf32))
    yield Setting("precision", "torch.backends.cudnn.benchmark", str(torch.backends.cudnn.benchmark))
    yield Setting("version", "Python", platform.python_version())
    yield Setting("version", "torch", torch.__version__)
    yield Setting("version", "torch.version.cuda", str(torch.version.cuda))
    if driver := _find_driver():
        yield Setting("version", "NVIDIA driver", driver)
    nccl = getattr(sys.modules.get("torch.cuda.nccl"), "version", None)
    if torch_internals.nccl_counts is not None and nccl is not None:
        yield Setting("version", "NCCL", ".".join(map(str, nccl())))
    for name in sorted(os.environ):
        if (name.startswith(_PREFIXES) or name in _NAMES) and name not in _OF_ONE_RANK:
            yield Setting("environment", name, os.environ[name][:_LONGEST])
    yield Setting("random", "torch.initial_seed()", str(torch.initial_seed()))


def _find_driver(path: str = "/proc/driver/nvidia/version") -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return ""
    numbers = [each for each in words if each[:1].isdigit()]
    return next((each for each in numbers if "." in each), "")


_PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "CUDA_", "CUBLAS_", "CUDNN_", "PYTORCH_", "UCX_", "FI_")
_NAMES = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL"})
_OF_ONE_RANK = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Variables that differ between ranks which each see only their own GPU."""
_LONGEST = 200
