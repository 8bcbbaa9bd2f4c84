"""Errors that DataParallel re-raised from a worker thread. Without `births on` only their text is available."""

from __future__ import annotations

import dataclasses
import re
from types import CodeType
from typing import Any

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.data_parallel import faults
from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.explain.traceback_frames import FRAME_IN_TEXT, site_in_worker
from devwidget.capture.explain.unwatched_calls import IN_LOADER
from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.call_sites import locals_of, site_of, to_site
from devwidget.capture.source_code.stack import is_users_code
from devwidget.records.errors import message
from devwidget.records.fault_details import NoParameters
from devwidget.records.site import Site

CAUGHT = re.compile(r"Caught (\w+) in replica (\d+) on device \d+")


def is_from_replica(context: ErrorContext) -> bool:
    """Return whether a DataParallel worker raised it."""
    return CAUGHT.search(message(context.raised)) is not None


def from_replica(context: ErrorContext) -> None:
    """Report what the text of the worker's traceback and the wrapper's frame show."""
    frame, caught = context.in_call(nn.DataParallel.forward.__code__), CAUGHT.search(message(context.raised))
    wrapper = locals_of(frame).get("self")
    if caught is None or not is_a(wrapper, nn.DataParallel):
        return
    site = site_in_worker(message(context.raised))
    owners = faults.owners_at(wrapper.module, site)
    module = context.state.tracker.path_of(owners[0] if len(owners) == 1 else wrapper.module)
    if caught[1] == "StopIteration":
        detail = NoParameters(faults.tensor_in(wrapper.module, site))
        faults.write_fault(context.state, "replica", module, site, caught[1], detail)
        return
    call = faults.CallFaults(context.state, wrapper, _inputs_of(context, wrapper), context.caller_of(context.frames[0]))
    failed = faults.FailedReplica(int(caught[2]), module, site, message(context.raised).strip().splitlines()[-1])
    if not _blame_stored(message(context.raised), call, failed):
        call.blame_split(failed)


def _blame_stored(text: str, call: faults.CallFaults, failed: faults.FailedReplica) -> bool:
    """Report an attribute that leads to the original module, if the text of the traceback has its function."""
    if "same device" not in text or failed.site is None:
        return False
    line, places = failed.site.text, [(file, name, int(line)) for file, line, name in FRAME_IN_TEXT.findall(text)]

    def runs(code: CodeType, attribute: str) -> bool:
        is_meant = is_users_code(code) or f"self.{attribute}" in line  # each layer of torch runs the same code
        return is_meant and any(faults.has_line(code, *place) for place in places)

    return call.blame_stored(failed, runs)


def from_wrapper(context: ErrorContext) -> None:
    """Report what the wrapper itself could not split or join: its own frame has the inputs and the outputs."""
    frame = context.in_call(nn.DataParallel.forward.__code__)
    variables = locals_of(frame)
    wrapper, outputs = variables.get("self"), variables.get("outputs")
    if frame is None or not is_a(wrapper, nn.DataParallel) or is_from_replica(context):
        return
    caller = context.caller_of(frame)
    call = faults.CallFaults(context.state, wrapper, _inputs_of(context, wrapper), caller)
    if outputs is not None:
        call.check_outputs(outputs)
    elif variables.get("replicas") is not None:
        path = context.state.tracker.path_of(wrapper.module)
        call.blame_split(faults.FailedReplica(0, path, to_site(site_of(caller)), context.error_text))


def _inputs_of(context: ErrorContext, wrapper: nn.Module) -> tuple[Any, Any]:
    for frame in context.frames:
        variables = locals_of(frame)
        if frame.f_code is torch_internals.module_call and variables.get("self") is wrapper:
            return variables.get("args", ()), variables.get("kwargs", {})
    return (), {}


def mark_replica(context: ErrorContext) -> None:
    """Mark faults of a worker, whose device differs from call to call."""
    faults = context.state.log.faults
    faults[:] = [dataclasses.replace(fault, in_replica=True) for fault in faults]


def failure_site(context: ErrorContext) -> Site | None:
    """Return where the program failed; in the worker if that is where it was raised."""
    is_from_worker = is_from_replica(context) or IN_LOADER.search(message(context.raised)) is not None
    worker = site_in_worker(message(context.raised)) if is_from_worker else None
    if worker is not None or context.user is None:
        return worker
    return to_site(site_of(context.user))
