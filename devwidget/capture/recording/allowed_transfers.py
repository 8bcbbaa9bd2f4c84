"""Transfers and syncs that are intentional: patterns such as `cuda:0 -> cpu`, active in a thread or in one recording."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from devwidget.capture.validation import words_of
from devwidget.records.device import KINDS
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.records.schema.public_calls import says_what_fits

_DEVICE = rf"\*|(?:cpu|meta|{'|'.join(KINDS)})(?::(?:\*|\d+))?"
_PATTERN = re.compile(rf"\s*({_DEVICE})\s*->\s*({_DEVICE})\s*")
_EXAMPLE = '"cuda:0 -> cpu", "cuda:* -> cpu", "cpu -> *" or "* -> *"'


@dataclass(frozen=True, slots=True)
class AllowedTransfer:
    """One pattern. `*` is every device, `cuda` and `cuda:*` are every GPU."""

    source: str
    target: str
    why: str

    def matches_transfer(self, source: torch.device, target: torch.device) -> bool:
        """Return whether the pattern matches a transfer."""
        return _matches_device(self.source, source) and _matches_device(self.target, target)


class _AllowingThread(threading.local):
    allowed: tuple[AllowedTransfer, ...] = ()


_here = _AllowingThread()


def parse_pattern(pattern: object, why: str = "") -> AllowedTransfer:
    """Parse a pattern.

    Raises:
        DevwidgetError: if it is not a pattern, with a valid one.
    """
    found = _PATTERN.fullmatch(pattern) if isinstance(pattern, str) else None
    if found is None or (found[1] == found[2] and "*" not in found[1]):
        raise DevwidgetError(
            Message("{pattern} is not a transfer", pattern=repr(pattern)),
            why=Message("a transfer goes from one device to another"),
            instead=_EXAMPLE,
        )
    return AllowedTransfer(found[1], found[2], why or found.string)


def all_parsed(patterns: str | Iterable[str]) -> tuple[AllowedTransfer, ...]:
    """Parse several patterns, or one."""
    return tuple(map(parse_pattern, words_of(patterns, "allow", _EXAMPLE)))


@says_what_fits
@contextlib.contextmanager
def allow(pattern: str, *, why: str) -> Iterator[None]:
    """Mark transfers and syncs as intentional: `with devwidget.allow("cuda:0 -> cpu", why="the tokenizer works on the host"):
    ...`.

    They are recorded and drawn, and no rule reports them. A sync on a value of `cuda:0` is `cuda:0 -> cpu`. Applies to the
    thread that runs the block; no effect outside of a recording.

    Args:
        pattern: source and target; `*` is every device, `cuda:*` every GPU.
        why: the reason, kept in the trace.

    Raises:
        DevwidgetError: if the pattern is invalid, or no reason is given.
    """
    if not "".join(words_of(why, "why", _EXAMPLE)).strip():
        raise DevwidgetError(Message("no reason is given"), instead=f'devwidget.allow({pattern!r}, why="...")')
    meant = parse_pattern(pattern, why)
    try:
        _here.allowed = (*_here.allowed, meant)
        yield
    finally:
        _here.allowed = tuple(each for each in _here.allowed if each is not meant)  # blocks of tasks end in any order


def why_allowed(source: torch.device, target: torch.device, always: Iterable[AllowedTransfer]) -> str:
    """Return the reason of the innermost pattern that a transfer matches, "" if none does."""
    return next((each.why for each in (*reversed(_here.allowed), *always) if each.matches_transfer(source, target)), "")


def _matches_device(word: str, device: torch.device) -> bool:
    kind, _, index = word.partition(":")
    return word == "*" or (kind == device.type and (index in ("", "*") or index == str(device.index or 0)))
