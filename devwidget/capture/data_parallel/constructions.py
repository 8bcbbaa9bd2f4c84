"""Find where DataParallel wrappers are built, and report a wrapper whose module is not on `device_ids[0]`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

import torch
from torch import nn

from devwidget.capture import devices
from devwidget.capture.faults import operand_names
from devwidget.capture.faults.owners import find_built
from devwidget.capture.object_fields import parts_of
from devwidget.capture.patching.registry import listen
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.source_code.stack import user_frames
from devwidget.capture.tensors import TENSOR_GROUPS, all_tensors, modules_in, named_tensors, own, own_parameters, tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.fault_details import WrappedElsewhere
from devwidget.records.site import Site


def watch_constructions(state: RecordingState, undo: Undo) -> None:
    """Remember the line of each `nn.DataParallel(...)`."""
    listen(state.is_here, nn.DataParallel, "__init__", functools.partial(_construct, state), undo)


def _construct(
    state: RecordingState, original: Callable[..., None], self: nn.DataParallel[Any], *args: Any, **kwargs: Any
) -> None:
    try:
        original(self, *args, **kwargs)
    except AssertionError:
        report_absent(state, kwargs.get("device_ids") or next(iter(args[1:]), None), sys._getframe(1))
        raise
    state.tracker.made[self] = raw_site(sys._getframe(1))


def report_absent(state: RecordingState, device_ids: Any, frame: FrameType) -> None:
    """Record the first device number passed to DataParallel that no GPU of this machine has."""
    kind = devices.kind_here()
    numbers = [each for each in parts_of(device_ids) if type(each) is int]
    absent = next((each for each in numbers if each >= devices.count_of(kind)), None)
    if absent is not None and devices.count_of(kind):
        error, wanted = "AssertionError: Invalid device id", f"{kind}:{absent}"
        available = devices.list_devices()
        state.report_fault("device", "DataParallel", raw_site(frame), error=error, requested=wanted, available=available)


def built_at(wrapper: nn.Module, state: RecordingState, caller: FrameType | None) -> Site | None:
    """Return the line that built a wrapper. If the wrapper is older than the recording, the source is searched."""
    known = to_site(state.tracker.made.get(wrapper))
    return known or find_built(state.tracker, user_frames(caller), wrapper)


def first_misplaced(wrapper: nn.DataParallel[Any]) -> tuple[str, torch.Tensor] | None:
    """Return the first parameter or buffer that is not on the device that DataParallel requires."""
    for group in TENSOR_GROUPS:
        for name, tensor in named_tensors(wrapper.module, group):
            if tensor.device != wrapper.src_device_obj:
                return name, tensor
    return None


def _how_split(model: nn.Module) -> Literal["", "layers", "map"]:
    """Return whether a model is split over GPUs on purpose: each layer is whole on one, and none is on the CPU."""
    places = set[torch.device]()
    split: Literal["layers", "map"] = "layers"
    for part in modules_in(model):
        place = {tensor.device for tensor in own_parameters(part).values()}
        if len(place) > 1 or torch.device("cpu") in place:
            return ""
        places |= place
        if "hf_device_map" in own(part):
            split = "map"
    if len(places) > 1:
        return split
    return ""


def report_misplaced(
    wrapper: nn.DataParallel[Any], misplaced: tuple[str, torch.Tensor], inputs: Any, state: RecordingState, caller: FrameType
) -> None:
    """Record that a wrapper cannot run; `caller` called it with these inputs."""
    name, tensor = misplaced
    wanted = wrapper.src_device_obj
    names = operand_names.Names(state, caller)
    operand = names.describe_stray(tensor, name, "", wanted)
    found = sorted({device_id(each.device) for each in all_tensors(wrapper.module)})
    given = sorted({device_id(each.device) for each in tensors_in(inputs)})
    root, birth = state.births.find_root(tensor), None
    if root is not None and len(found) > 1:  # only this tensor arrived later
        birth = to_site(root.site)
    error = (
        f"RuntimeError: module must have its parameters and buffers on device {wanted} (device_ids[0]) "
        f"but found one of them on device: {tensor.device}"
    )
    state.report_fault(
        "parallel",
        "DataParallel.forward",
        raw_site(caller),
        module=state.tracker.path_of(wrapper),
        error=error,
        operands=(operand,),
        target=device_id(wanted),
        healed=state.heal,
        birth=birth or built_at(wrapper, state, caller),
        detail=WrappedElsewhere(tuple(wrapper.device_ids), tuple(found), tuple(given), _how_split(wrapper.module)),
    )
