"""Promotions: a float64 tensor that nobody cast on purpose turns what it touches into float64."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from devwidget.capture.faults import operand_names
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.event_log import device_id, format_dtype
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, call_text, caller
from devwidget.capture.source_code.statements import MOVES
from devwidget.capture.tensors import tensors_in
from devwidget.records.trace import FaultDetails, Operand


def report_promotion(
    state: RecordingState, name: str, operands: Any, result: torch.Tensor, called: FrameType, site: RawSite | None
) -> None:
    """Write down a result that is float64 only because one operand is. Casts that the code asks for are meant."""
    floats = [t for t in tensors_in(operands, depth=2) if t.is_floating_point()]
    doubles = [t for t in floats if t.dtype is torch.float64]
    narrow = [t for t in floats if t.dtype is not torch.float64]
    direct = caller(called)
    frame = _through_nn(direct)
    own_line = site is not None and frame is not None and frame.f_code is site.code
    if not doubles or not narrow or not own_line or state.tracker.phase not in ("forward", "loss"):
        return
    birth = state.births.find_birth(doubles[0])
    logging = frame is direct and site is not None and state.tracker.is_outside(site)
    if site is None or frame is None or logging or (birth is not None and _is_meant(birth)):
        return
    names = operand_names.Names(state, frame)
    stray = names.with_birth(_describe_operand(names, doubles[0], stray=True), doubles[0], result.device, of_dtype=True)
    state.log.log_fault(
        fault_at(
            state.tracker,
            "promotion",
            name,
            site,
            operands=(_describe_operand(names, narrow[0], stray=False), stray),
            target=device_id(result.device),
            expression=call_text(site),
            model_name=names.model_name(),
            details=FaultDetails(wanted=format_dtype(narrow[0].dtype)),
        )
    )


def _through_nn(frame: FrameType | None) -> FrameType | None:
    """Who called a loss of torch.nn: it computes with what it is given, and casts nothing of its own."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("torch.nn."):
        frame = frame.f_back
    return frame


def _is_meant(birth: Birth) -> bool:
    """The tensor was cast to float64, or computed from one that was, or from an earlier promotion."""
    root = birth.dtype_root()
    return root.call in MOVES or root.parent is not None


def _describe_operand(names: operand_names.Names, tensor: torch.Tensor, *, stray: bool) -> Operand:
    return operand_of(tensor, "other" if stray else "input", names.expression(tensor), stray=stray)
