"""Copies between devices that user code requests, and what happens to their data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.recording.allowed_transfers import AllowedTransfer, why_allowed
from devwidget.capture.recording.births import Birth, Transfer
from devwidget.capture.recording.event_log import bytes_of, make_record
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.capture.undo import Undo
from devwidget.records.trace import Held, Loading, Operand, UserMove

LONGEST_CHAIN, KEPT = 16, 32
"""Transfers kept of the history of data, and of one line: as many of the first and of the last."""
VIEWS = frozenset({"view", "view_as", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "t", "permute",
                   "movedim", "swapaxes", "expand", "expand_as", "detach", "contiguous"})  # fmt: skip
"""Calls that only view the data: nothing is computed."""


def is_pinned(tensor: torch.Tensor) -> bool:
    """Return whether the memory of a tensor is pinned. torch runs an operator for this, which is not the program's."""
    with hide_from_modes():
        return tensor.is_pinned()


@dataclass(slots=True)
class Transfers:
    """Transfers of one recording."""

    tracker: ModuleTracker
    lines: dict[tuple[Any, ...], list[Transfer]] = field(default_factory=dict)
    pending: list[Transfer] = field(default_factory=list)
    allowed: tuple[AllowedTransfer, ...] = ()

    def make_transfer(
        self,
        number: int,
        site: RawSite | None,
        before: Birth | None,
        source: torch.Tensor,
        target: torch.device,
        held: Held | None = None,
    ) -> Transfer:
        """Return the transfer of a tensor that a line of the user requests.

        Args:
            number: place in the trace.
            site: the line.
            before: birth of the tensor.
            source: the tensor.
            target: where it is copied.
            held: owner of the tensor, if it outlives the step.
        """
        tracker = self.tracker
        transfer = Transfer(
            number=number,
            source=source.device,
            target=target,
            bytes=bytes_of(source),
            shape=tuple(source.shape),
            module=tracker.module,
            phase=tracker.phase,
            site=site,
            step=tracker.step,
            held=held,
            meant=why_allowed(source.device, target, self.allowed),
        )
        if before is not None:
            transfer.direct_from = before.transfer
            transfer.chain = tuple(each.number for each in before.transfers)
        return transfer

    def find_target(self, transfer: Transfer) -> Operand | None:
        """Return the tensor into which the same line has written before."""
        line = self.lines.get(_transfer_line(transfer), [])
        return next((each.into for each in line if each.into is not None), None)

    def note_arrival(self, birth: Birth, transfer: Transfer, before: Birth | None) -> None:
        """Keep a transfer whose data is now part of a tensor.

        Args:
            birth: birth of that tensor.
            before: birth of the data.
        """
        chain = before.transfers if before is not None else ()
        birth.transfer, birth.transfers = transfer, (*chain, transfer)[-LONGEST_CHAIN:]
        self.keep_transfer(transfer)
        if transfer.unsafe:
            self.pending.append(transfer)
        elif transfer.target.type == "cpu":  # a copy that blocks waits for those before it, too
            self.note_synchronized()

    def keep_transfer(self, transfer: Transfer) -> None:
        """Keep a transfer under its line."""
        line = self.lines.setdefault(_transfer_line(transfer), [])
        if len(line) >= 2 * KEPT:
            del line[KEPT]
        line.append(transfer)

    @property
    def kept(self) -> Iterator[Transfer]:
        """Return the kept transfers, line by line."""
        return itertools.chain.from_iterable(self.lines.values())

    def note_use(self, birth: Birth, site: RawSite | None, *, there: bool = True) -> None:
        """Note that an operation computed with a tensor; not for one that was repaired, or that copies it itself."""
        transfer = birth.transfer
        if transfer is not None and there:
            transfer.computed = True
        if self.pending:
            for transfer in birth.transfers:
                if transfer in self.pending and transfer.read is None:
                    transfer.read = (site, self.tracker.module)

    def forget_kept_copies(self, is_kept: Callable[[torch.Tensor], bool]) -> None:
        """Drop copies that modules keep, after the forward pass: they will not be copied again."""
        for transfer in self.kept:
            if transfer.moved is not None:
                result, transfer.moved = transfer.moved(), None
                if result is not None and is_kept(result):
                    transfer.held = None

    def note_synchronized(self) -> None:
        """Note a sync: every pending copy has arrived."""
        self.pending.clear()

    def watch_synchronizers(self, listen: Callable[..., None], undo: Undo) -> None:
        """Watch explicit synchronization by `RecordingState.listen`."""
        owners = (torch.cuda, torch.cuda.Stream, torch.cuda.Event, torch.accelerator)  # virtual GPUs replace their calls
        for owner, name in itertools.product(owners, ("synchronize", "query")):
            if hasattr(owner, name):
                listen(owner, name, self._synchronize, undo)

    def _synchronize(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        if out is not False:  # `query` says that nothing is under way any more
            self.note_synchronized()
        return out

    # -- records

    def list_facts(self) -> dict[str, Any]:
        """Return the transfers in order."""
        return {"crossings": tuple(map(_make_crossing, sorted(self.kept, key=lambda each: each.number)))}


def _make_crossing(transfer: Transfer) -> UserMove:
    site, module = transfer.read or (None, None)
    direct, loading = transfer.direct_from, transfer.loading
    return make_record(
        UserMove,
        transfer,
        direct_from=direct.number if direct is not None and not direct.computed else -1,
        unsafe_read=to_site(site),
        unsafe_module=module,
        loading=Loading(to_site(loading[0]), *loading[1:]) if loading is not None else None,
    )


def _transfer_line(transfer: Transfer) -> tuple[Any, ...]:
    """Return the key under which transfers are folded."""
    return transfer.site, transfer.source, transfer.target, transfer.module, transfer.phase
