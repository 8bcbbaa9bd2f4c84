"""Watches every allocation of the step on every GPU: how much is held at the peak, of what, in which module and line."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import math
import pathlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType

import torch
from torch import nn

from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.source_code.call_sites import RawSite, site_of, to_site
from devwidget.capture.source_code.stack import is_own
from devwidget.capture.tensors import named_tensors
from devwidget.extras.plan.current_module import CurrentModule
from devwidget.extras.plan.records.plan import DevicePlan, PlanMoment, StepPoint
from devwidget.gpus.state import Account
from devwidget.memory import block_bytes
from devwidget.records.device import DeviceId
from devwidget.records.trace import Phase


@dataclass(frozen=True)
class _Moment:
    phase: Phase
    module: str | None
    line: RawSite | None
    step: int

    def to_record(self, last_step: int) -> PlanMoment:
        return PlanMoment(self.phase, self.module, to_site(self.line), is_earlier=0 < self.step < last_step)


@dataclass
class _Peak:
    held: int = 0
    gradients: int = 0
    optimizer: int = 0
    moment: _Moment | None = None
    tips_over: _Moment | None = None
    made: tuple[int, int] | None = None


@dataclass
class Watcher:
    """The onlooker of the simulation's ledger.

    Attributes:
        gpus: how many.
        where: tells the module that runs.
        phase: what runs.
        placing: path of the module whose tensors are being placed, before the step.
        gradients, optimizer: bytes of each GPU, up to now.
        making: the optimizer while its first step makes its state.
        guesses: where the step went on by a guessed choice.
        entered: all that ran.
    """

    gpus: int
    where: CurrentModule | None = None
    phase: Phase = "build"
    placing: str | None = None
    gradients: dict[int, int] = field(default_factory=dict)
    optimizer: dict[int, int] = field(default_factory=dict)
    making: torch.optim.Optimizer | None = None
    guesses: dict[_Moment, None] = field(default_factory=dict)
    entered: set[Phase] = field(default_factory=set)
    _parameters: list[torch.Tensor] = field(default_factory=list)
    _arrived: set[int] = field(default_factory=set)
    _peaks: list[_Peak] = field(default_factory=list)
    _courses: list[list[tuple[Phase, int, int, int]]] = field(default_factory=list)
    _step: int = -1

    def __post_init__(self) -> None:
        self._peaks = [_Peak() for _ in range(self.gpus)]
        self.begin_step()

    def begin_step(self) -> None:
        """Begin a step, whose course is that of the last one."""
        self._courses = [[] for _ in range(self.gpus)]
        self._step += 1  # 0 while the model is placed

    def taken(self, block: MemoryBlock, held: int) -> None:
        """Note one allocation; `held` is what the GPU holds with it."""
        self.note_held(block.index, held)

    def freed(self, block: MemoryBlock) -> None:
        """A block that is freed changes no peak."""

    def note_held(self, index: int, held: int) -> None:
        """Note what a GPU holds."""
        self._courses[index].append((self.phase, held, self.gradients.get(index, 0), self.optimizer.get(index, 0)))
        peak = self._peaks[index]
        # Of equal peaks the last counts.
        if held < peak.held:
            return
        peak.held, peak.moment = held, self._find_moment()
        peak.gradients, peak.optimizer = self.gradients.get(index, 0), self.optimizer.get(index, 0)
        peak.made = None
        if self.making is not None and self.phase == "optimizer":
            peak.made = _count_state(self.making)

    def refused(self, index: int, size: int, held: int) -> None:
        """Note an allocation that did not fit, and that is made nevertheless."""
        if self._peaks[index].tips_over is None:
            self._peaks[index].tips_over = self._find_moment()

    def note_guess(self) -> None:
        """Note that the step continues with a guessed choice."""
        self.guesses[self._find_moment()] = None

    def forget_modules(self) -> None:
        """Free the copy: its storages hold us by way of the ledger, a circle through C++ that no collector sees."""
        self.where = self.making = None
        self._parameters = []

    def _find_moment(self) -> _Moment:
        # Called from inside the operator that allocates: the frames above this one are still those of the program.
        return _Moment(self.phase, self.where.path if self.where else self.placing, line_below(sys._getframe()), self._step)

    def enter_phase(self, phase: Phase) -> None:
        """Begin a part of the step; a forward begins with the gradients that were kept or are added up."""
        self.phase = phase
        self.entered.add(phase)
        if phase == "forward":
            kept = {id(each): each.grad for each in self._parameters if each.grad is not None}
            self._arrived = set(kept)
            self.gradients = bytes_by_gpu(list(kept.values()))

    @contextlib.contextmanager
    def counting_gradients(self, model: nn.Module) -> Iterator[None]:
        """Count each gradient as it arrives at its parameter."""
        self._parameters, handles = [], []
        for _, parameter in named_tensors(model, "_parameters"):
            if parameter.requires_grad:
                self._parameters.append(parameter)
                handles.append(parameter.register_post_accumulate_grad_hook(self._count_gradient))  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self._parameters = []
            for handle in handles:
                handle.remove()

    def _count_gradient(self, parameter: torch.Tensor) -> None:
        """Count a gradient that has arrived, for the first time or again."""
        gradient = parameter.grad
        if gradient is not None and is_on_gpu(gradient) and id(parameter) not in self._arrived:
            self._arrived.add(id(parameter))
            for index, size in bytes_by_gpu([gradient]).items():
                self.gradients[index] = self.gradients.get(index, 0) + size

    def count_optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the state; a peak during the step that made it held what was made by then."""
        for index, peak in enumerate(self._peaks):
            if peak.made is not None:
                peak.optimizer, peak.made = bytes_by_gpu(_state_tensors(optimizer, *peak.made)).get(index, 0), None
        self.optimizer, self.making = bytes_by_gpu(_state_tensors(optimizer)), None

    def describe_device(self, index: int, account: Account, weights: int) -> DevicePlan:
        """Describe what was seen of one GPU; `weights` are bytes of parameters and buffers."""
        peak = self._peaks[index]
        # A gradient may be one with an activation, and weights are not all there before the step.
        weights = min(weights, peak.held)
        gradients = min(peak.gradients, peak.held - weights)
        optimizer = min(peak.optimizer, peak.held - weights - gradients)
        parts = (weights, gradients, optimizer, peak.held - weights - gradients - optimizer)
        at, tips_over = self._describe_moment(peak.moment), self._describe_moment(peak.tips_over)
        reserved = account.peak_in_segments
        sizes = account.capacity, peak.held, *parts
        course = tuple(itertools.starmap(StepPoint, _take_fullest(self._courses[index])))
        return DevicePlan(DeviceId(virtual_gpu(index).type, index), *sizes, at, tips_over, reserved, account.context, course)

    def _describe_moment(self, moment: _Moment | None) -> PlanMoment | None:
        if moment is None:
            return None
        return moment.to_record(self._step)


# Of the course of a step; more would be finer than a pixel.
MOST_POINTS = 240


def _take_fullest(course: list[tuple[Phase, int, int, int]]) -> Iterator[tuple[Phase, int, int, int]]:
    """Yield the fullest moment of each of so many parts of a course, which are as long as each other."""
    size = max(math.ceil(len(course) / MOST_POINTS), 1)
    for start in range(0, len(course), size):
        yield max(course[start : start + size], key=lambda moment: moment[1])


def _count_state(optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Count the parameters with state, and the values of the last of them; both stay in the order they were made in."""
    return len(optimizer.state), len(next(reversed(optimizer.state.values()), ()))


def _state_tensors(optimizer: torch.optim.Optimizer, entries: int | None = None, last: int | None = None) -> list[torch.Tensor]:
    """Return the tensors of the state, or those that were there when `_count_state` returned these numbers."""
    states = [list(state.values()) for state in optimizer.state.values()][:entries]
    if states:
        states[-1] = states[-1][:last]
    return [value for value in itertools.chain(*states) if isinstance(value, torch.Tensor)]


def bytes_by_gpu(tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    """Sum the bytes that tensors take on each GPU, each storage once."""
    storages = {tensor.untyped_storage()._cdata: tensor for tensor in tensors if is_on_gpu(tensor)}
    sums: dict[int, int] = {}
    for tensor in storages.values():
        size = block_bytes(tensor.untyped_storage().nbytes(), DeviceId(tensor.device.type, tensor.get_device()))
        sums[tensor.get_device()] = sums.get(tensor.get_device(), 0) + size
    return sums


_FOLDERS = tuple(str(pathlib.Path(sysconfig.get_path(name))) + "/" for name in ("stdlib", "platstdlib"))
_PACKAGES = ("/site-packages/", "/dist-packages/")
# The functions below which everything happens.
_BOTTOM = ("run_phase", "make_plan")


def line_below(frame: FrameType | None) -> RawSite | None:
    """Find the innermost line that is neither torch's nor ours; None if the step itself is reached, as in backward."""
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        if frame.f_code.co_name in _BOTTOM and is_own(frame.f_code.co_filename):
            return None
        frame = frame.f_back
    return None if frame is None else site_of(frame)


def deepest_line(traceback: TracebackType | None) -> RawSite | None:
    """Find the innermost such line that an exception passed."""
    found = None
    while traceback is not None:
        if not _is_machinery(traceback.tb_frame.f_code.co_filename):
            found = RawSite(traceback.tb_frame.f_code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found


@functools.cache
def _is_machinery(filename: str) -> bool:
    installed = any(mark in filename for mark in _PACKAGES)
    if is_own(filename) or filename.startswith(("<", *_machinery_folders())):
        return True
    return filename.startswith(_FOLDERS) and not installed


@functools.cache
def _machinery_folders() -> tuple[str, ...]:
    """Return the folders of torch, and of accelerate, whose hooks run between the parts of a model."""
    found = importlib.util.find_spec("accelerate")
    homes = [torch.__file__]
    if found is not None and found.origin:
        homes.append(found.origin)
    return tuple(str(pathlib.Path(home).parent) + "/" for home in homes)


def virtual_gpu(index: int) -> torch.device:
    """Return the device of one virtual GPU."""
    return torch.device("cuda", index)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on a virtual GPU."""
    return tensor.device.type == "cuda"
