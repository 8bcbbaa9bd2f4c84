"""What of `torch.cuda` has a replacement for any accelerator, and since which version of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

ACCELERATOR = "torch.accelerator.current_accelerator()"
ACCELERATOR_TYPE = f"{ACCELERATOR}.type"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Another name for the same thing.

    Attributes:
        name: full name of the replacement.
        since: first version of torch that has it.
        takes_positional: positional arguments mean the same.
        takes_keywords: keyword arguments mean the same.
        takes_type: its first argument is the type of the device, which the old name does not take.
        needs_accelerator: it raises on a machine without an accelerator, where the old name does nothing or returns 0.
    """

    name: str
    since: tuple[int, int]
    takes_positional: bool = True
    takes_keywords: bool = False
    takes_type: bool = False
    needs_accelerator: bool = False


def _in_accelerator(since: tuple[int, int], **names: str) -> dict[str, Replacement]:
    return {f"torch.cuda.{old}": Replacement(f"torch.accelerator.{new}", since) for old, new in names.items()}


def _with_same_names(since: tuple[int, int], names: str) -> dict[str, Replacement]:
    return _in_accelerator(since, **{name: name for name in names.split()})


def _with_accelerator_only(since: tuple[int, int], names: str) -> dict[str, Replacement]:
    return {name: replace(each, needs_accelerator=True) for name, each in _with_same_names(since, names).items()}


FIRST = (2, 6)
"""The version of torch in which `torch.accelerator` came."""
REPLACEMENTS: Mapping[str, Replacement] = {
    **_with_same_names(FIRST, "is_available device_count synchronize current_stream set_stream"),
    **_in_accelerator((2, 7), current_device="current_device_index", set_device="set_device_index"),
    **_with_accelerator_only((2, 9), "empty_cache memory_allocated max_memory_allocated memory_reserved"),
    **_with_accelerator_only((2, 9), "max_memory_reserved memory_stats"),
    **_with_same_names((2, 9), "reset_peak_memory_stats reset_accumulated_memory_stats"),
    **_in_accelerator((2, 10), mem_get_info="get_memory_info"),
    "torch.cuda.Event": Replacement("torch.Event", FIRST, takes_positional=False, takes_keywords=True),
    "torch.cuda.Stream": Replacement("torch.Stream", FIRST, takes_keywords=True),
    "torch.cuda.OutOfMemoryError": Replacement("torch.OutOfMemoryError", FIRST),
    "torch.cuda.amp.autocast": Replacement(
        "torch.amp.autocast", FIRST, takes_positional=False, takes_keywords=True, takes_type=True
    ),
    "torch.cuda.amp.GradScaler": Replacement("torch.amp.GradScaler", FIRST, takes_keywords=True, takes_type=True),
}
"""Full name -> what replaces it. Names that are not here have no function of the same use and arguments.

What needs an accelerator was run with torch 2.13 for the CPU.
Source: https://docs.pytorch.org/docs/stable/accelerator.html, and the pages of that name for torch 2.6 to 2.10.
"""
