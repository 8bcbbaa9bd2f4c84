"""Bytes, counts and times as words; the only place where bytes become "1.95 MiB"."""

from __future__ import annotations

from devwidget.language.speaking import say_count


def format_bytes(size: int) -> str:
    """`2047` -> `2.0 KiB`, `16384` -> `16 KiB`, `1048576` -> `1.00 MiB`: three digits from MiB on, powers of 1024."""
    if abs(size) < 1024:
        return f"{size} B"
    if abs(size) < 1024**2 - 512:
        kib = size / 1024
        if kib >= 10 or size % 1024 == 0:
            return f"{kib:.0f} KiB"
        return f"{kib:.1f} KiB"
    value, unit = size / 1024**2, "MiB"
    for larger in ("GiB", "TiB", "PiB"):
        if abs(value) < 1023.5:
            break
        value, unit = value / 1024, larger
    return f"{_three_digits(value)} {unit}"


def some_bytes(size: int) -> str:
    """A size in words; "" for none."""
    return format_bytes(size) if size else ""


def some_seconds(seconds: float) -> str:
    """A time in words; "" for none."""
    return format_seconds(seconds) if seconds else ""


def format_count(number: int) -> str:
    """Return `124.4 M` for `124439808`; small numbers are unchanged."""
    for limit, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= limit:
            return f"{number / limit:.1f} {unit}"
    if number >= 10_000:
        return f"{number / 1000:.1f} k"
    return str(number)


def format_seconds(seconds: float) -> str:
    """`0.0123` -> `12 ms`."""
    if seconds >= 100:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 0.001:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds * 1e6:.0f} µs"


def count_words(number: int, noun: str) -> str:
    """Return `1 hop` or `2 hops`. The catalogues have the nouns of the core."""
    return say_count(f"{{count}} {noun}", f"{{count}} {noun}s", number)


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"
