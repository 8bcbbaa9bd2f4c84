"""Copies between devices that user code requests, and what happens to their data."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.recording.allowed_transfers import AllowedTransfer, why_allowed
from devwidget.capture.recording.births import Birth, TensorRef, Transfer
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

    def add_transfer(
        self, birth: Birth, before: Birth | None, source: torch.Tensor, result: torch.Tensor, held: Held | None, *, later: bool,
        loading: tuple[RawSite | None, bool, bool] | None = None,
    ) -> None:  # fmt: skip
        """Record that user code moved a tensor.

        Args:
            birth: birth of the result.
            before: birth of the moved tensor.
            held: owner of that tensor, if it outlives the step.
            later: the copy is asynchronous.
            loading: for a tensor from a loader, as `Loading`.
        """
        unsafe = later and result.device.type == "cpu"
        moved = TensorRef(result) if held is not None else None
        transfer = self._make_transfer(
            birth.number, birth.site, before, source, result.device, held, unsafe=unsafe, moved=moved
        )
        transfer.loading = loading
        self._note_arrival(birth, transfer, before)

    def add_fill(
        self, number: int, site: RawSite | None, birth: Birth, before: Birth | None, value: torch.Tensor,
        target: torch.Tensor, into: Callable[[], Operand],
    ) -> None:  # fmt: skip
        """Record that user code wrote a tensor into a part of one on another device.

        Args:
            birth: birth of the target.
            before: birth of the value.
            into: describes the target; called once per line.
        """
        transfer = self._make_transfer(number, site, before, value, target.device, None)
        line = self.lines.get(_transfer_line(transfer), [])
        transfer.into = next((each.into for each in line if each.into is not None), None) or into()
        transfer.trains = value.requires_grad and torch.is_grad_enabled()
        transfer.computed = birth.transfer is not None and birth.transfer.computed
        self._note_arrival(birth, transfer, before)

    def look_up(
        self, number: int, site: RawSite | None, before: Birth | None, index: torch.Tensor, target: torch.device, held: Held
    ) -> None:
        """Record that user code indexed a tensor with an index that an object keeps on another device."""
        transfer = self._make_transfer(number, site, before, index, target, held)
        transfer.is_index = True
        self._keep_transfer(transfer)

    def _make_transfer(
        self, number: int, site: RawSite | None, before: Birth | None, source: torch.Tensor, target: torch.device,
        held: Held | None, *, unsafe: bool = False, moved: weakref.ref[torch.Tensor] | None = None,
    ) -> Transfer:  # fmt: skip
        tracker = self.tracker
        chain = before.transfers if before is not None else ()
        meant = why_allowed(source.device, target, self.allowed)
        return Transfer(number, source.device, target, bytes_of(source), tuple(source.shape), tracker.module, tracker.phase,
                        site, tracker.step, tuple(each.number for each in chain),
                        before.transfer if before is not None else None, held, unsafe, meant, moved=moved)  # fmt: skip

    def _note_arrival(self, birth: Birth, transfer: Transfer, before: Birth | None) -> None:
        chain = before.transfers if before is not None else ()
        birth.transfer, birth.transfers = transfer, (*chain, transfer)[-LONGEST_CHAIN:]
        self._keep_transfer(transfer)
        if transfer.unsafe:
            self.pending.append(transfer)
        elif transfer.target.type == "cpu":  # a copy that blocks waits for those before it, too
            self.note_synchronized()

    def _keep_transfer(self, transfer: Transfer) -> None:
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
            result = transfer.moved() if transfer.moved is not None else None
            if result is not None and is_kept(result):
                transfer.held = None
            transfer.moved = None

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
    read, direct, loading = transfer.read, transfer.direct_from, transfer.loading
    return make_record(
        UserMove,
        transfer,
        direct_from=direct.number if direct is not None and not direct.computed else -1,
        unsafe_read=to_site(read[0]) if read is not None else None,
        unsafe_module=read[1] if read is not None else None,
        loading=Loading(to_site(loading[0]), *loading[1:]) if loading is not None else None,
    )


def _transfer_line(transfer: Transfer) -> tuple[Any, ...]:
    """Return the key under which transfers are folded."""
    return transfer.site, transfer.source, transfer.target, transfer.module, transfer.phase
