"""Code under watch of torch's own profiler: a recording without modes, patches of operators and hooks."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

import torch
from torch import nn

from devwidget import simulator
from devwidget.capture.explain.failure import failure_of
from devwidget.capture.faults.owners import modules_named
from devwidget.capture.interrupts import is_from_handler, sure_exit, uninterrupted
from devwidget.capture.source_code.call_sites import user_frame
from devwidget.capture.validation import refuse_model
from devwidget.fix_writer import remember_findings
from devwidget.profiler_engine.session import ProfilerSession, find_obstacle
from devwidget.recording import Recording
from devwidget.records.errors import DevwidgetError, error_text, message
from devwidget.records.schema.message import Message, listed
from devwidget.records.trace import Trace
from devwidget.rules import registry as rules

INTERRUPTED = Message(
    "{kind}: {reason}",
    kind=Message("what came after"),
    reason=Message("the program has started a profiler of its own, and this recording has ended there"),
)


def find_reason_for_modes() -> Message | None:
    """Why only modes can record here and now; None where torch's profiler can."""
    return Message("GPUs are virtual") if simulator.active() is not None else find_obstacle()


def choose_passive(engine: str, asked: list[str]) -> PassiveRecording | Message:
    """A recording by torch's profiler; a note that says why not where `auto` takes modes.

    Args:
        engine: `profiler` or `auto`.
        asked: parameters of `record` that only modes can serve.

    Raises:
        DevwidgetError: if the profiler cannot do what is asked.
    """
    if engine not in ("profiler", "auto"):
        raise DevwidgetError(Message("no engine {engine}", engine=repr(engine)), instead='"mode", "profiler" or "auto"')
    why = Message("only modes know {names}", names=listed(f"`{name}`" for name in asked)) if asked else find_reason_for_modes()
    if why is None:
        return PassiveRecording()
    if engine == "auto":
        return Message("{kind}: {reason}", kind=Message("torch's profiler was not taken"), reason=why)
    raise _refuse_profiler(why)


def _refuse_profiler(why: str) -> DevwidgetError:
    return DevwidgetError(Message("torch's profiler cannot record this"), why=why, instead='devwidget.record(engine="mode")')


class PassiveRecording(Recording):
    """Code under watch of torch's profiler; nothing is healed. What was recorded becomes records when the block has ended."""

    def __init__(self) -> None:
        self._model: nn.Module | None = None
        self._session = ProfilerSession()
        self._has_begun = False
        self._trace: Trace | None = None
        self._started = 0.0

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, name: str = "") -> None:
        """Name the modules; without it the outermost module called is the root.

        Args:
            model: the root.
            optimizer: not needed here.
            name: not needed here.

        Raises:
            DevwidgetError: if `model` is no module.
        """
        refuse_model(model)
        self._model = model

    @property
    def trace(self) -> Trace:
        """What was seen, once the block has ended; before that, an empty trace."""
        return self._trace or Trace(engine="profiler")

    def _read_trace(self, frame: FrameType) -> Trace:
        """The facts. Modules are found while they live, and lines while the code lives into whose names torch points."""
        from devwidget.profiler_engine.facts import (
            read_facts,  # which names parts of torch that `find_reason_for_modes` asks for
        )

        session, model = self._session, self._model
        named = [module for _, module in modules_named(_frames_of_user(frame))] if model is None else []
        try:
            facts = read_facts(session.roots, model, named, has_memory=session.has_memory)
        except Exception as trouble:  # ours, which must not become the program's
            if is_from_handler(trouble):
                raise
            told = Message("{kind}: {reason}", kind=Message("recorder"), reason=error_text(trouble))
            facts = Trace(engine="profiler", not_checked=(told,))
        finally:
            session.forget_events()
        return dataclasses.replace(facts, not_checked=(*facts.not_checked, *([INTERRUPTED] * session.interrupted)))

    def __enter__(self) -> Self:
        if self._has_begun:
            raise DevwidgetError(
                Message("a recording can be entered once"), instead="with devwidget.record() as recording: ..."
            )
        obstacle = find_reason_for_modes()
        if obstacle is not None:
            raise _refuse_profiler(obstacle)
        with uninterrupted():
            self._has_begun = True
            self._session.start()
            self._started = time.perf_counter()
        return self

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with uninterrupted():
            seconds = time.perf_counter() - self._started
            self._session.stop()
            facts = dataclasses.replace(self._read_trace(sys._getframe(1)), seconds=seconds)
            if error is not None:  # in words: its frames would keep all that they hold
                facts = dataclasses.replace(facts, error=error_text(error), failure=failure_of(error, message(error), None))
            self._trace = rules.judge(facts)
            self._model = None
            remember_findings(self._trace.findings)
        return None


def _frames_of_user(frame: FrameType | None) -> Iterator[FrameType]:
    while (frame := user_frame(frame)) is not None:
        yield frame
        frame = frame.f_back
