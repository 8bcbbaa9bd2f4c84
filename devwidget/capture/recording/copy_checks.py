"""Check whether copies between GPUs arrive unchanged: both ends of each are read, on request."""

from __future__ import annotations

from typing import Any, Literal

import torch

from devwidget.capture.patching.mode_stack import reading_values
from devwidget.capture.recording.event_log import Log, bytes_of, device_id
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.recording.observer import Observer
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.records.errors import error_text
from devwidget.records.schema.message import Message
from devwidget.records.trace import CopyCheck, Phase

_CHUNK = 1 << 20
"""Bytes that are processed together: the sums take 16 times as many."""
_FACTOR = 1_000_003
_MOST_WORDS = 100
_Line = tuple[torch.device, torch.device, int, str | None, Phase, RawSite | None]


class CopyChecks(Observer):
    """The copies between GPUs of one recording."""

    def __init__(self, log: Log, tracker: ModuleTracker) -> None:
        self._log, self._tracker = log, tracker
        self._lines: dict[_Line, list[int]] = {}

    def copy_made(self, before: torch.Tensor, after: torch.Tensor, site: RawSite | None) -> None:
        """Wait for a copy and read both ends."""
        if {before.device.type, after.device.type} & {"cpu", "meta"} or before.layout is not torch.strided:
            return
        pair = (before.device, after.device)
        try:
            with reading_values():
                sent = before.expand(after.shape).to(after.dtype)  # on its own device: a cast gives the same on both
                same = checksum_tensor(sent) == checksum_tensor(after)
        except RuntimeError as error:  # no memory for the sums, or tensors without values
            said = error_text(error).splitlines()[0][:_MOST_WORDS]
            self._log.add_note(Message("{kind}: {reason}", kind=Message("copies between GPUs"), reason=said))
            return
        key = (*pair, bytes_of(after), self._tracker.module, self._tracker.phase, site)
        entry = self._lines.setdefault(key, [self._log.number(), 0, 0])
        entry[1] += 1
        entry[2] += not same

    def list_facts(self) -> dict[str, Any]:
        """Return what was compared, line by line."""
        checks = []
        for (source, target, size, module, phase, site), (number, count, wrong) in self._lines.items():
            pair, peer = (device_id(source), device_id(target)), _peer_access(source, target)
            checks.append(CopyCheck(number, *pair, size, module, phase, to_site(site), count, wrong, peer))
        return {"copy_checks": tuple(checks)}


def checksum_tensor(tensor: torch.Tensor) -> int:
    """Return a checksum of all bytes and their positions, computed on the tensor's device. It wraps equally on every device."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    total: torch.Tensor | None = None
    raw = flat.view(torch.uint8)
    for start in range(0, raw.numel(), _CHUNK):
        chunk = raw[start : start + _CHUNK]
        places = torch.ones_like(chunk, dtype=torch.int64).cumsum(0)
        part = (places * (chunk.to(torch.int64) + 1)).sum()
        total = part if total is None else total * _FACTOR + part
    if total is None:
        return 0
    return int(total.item())


def _peer_access(source: torch.device, target: torch.device) -> Literal["yes", "no", "unknown"]:
    ask = getattr(torch.cuda, "can_device_access_peer", None)
    if ask is None or source.type != "cuda" or target.type != "cuda":
        return "unknown"
    try:
        if ask(target.index, source.index):
            return "yes"
        return "no"
    except (RuntimeError, AssertionError, AttributeError, NameError):  # no driver behind these names
        return "unknown"
