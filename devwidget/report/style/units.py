"""Bytes, counts and times as words; the only place where bytes become "1.95 MiB"."""

from __future__ import annotations

from devwidget.language.speaking import both, say_count

_COUNTED = {
    "GPU": both("{count} GPU", "{count} GPUs"),
    "call": both("{count} call", "{count} calls"),
    "collective": both("{count} collective", "{count} collectives"),
    "device": both("{count} device", "{count} devices"),
    "distinct placement": both("{count} distinct placement", "{count} distinct placements"),
    "error": both("{count} error", "{count} errors"),
    "finding": both("{count} finding", "{count} findings"),
    "hint": both("{count} hint", "{count} hints"),
    "hop": both("{count} hop", "{count} hops"),
    "kind": both("{count} kind", "{count} kinds"),
    "module": both("{count} module", "{count} modules"),
    "module call": both("{count} module call", "{count} module calls"),
    "number": both("{count} number", "{count} numbers"),
    "operator": both("{count} operator", "{count} operators"),
    "other place": both("{count} other place", "{count} other places"),
    "parameter": both("{count} parameter", "{count} parameters"),
    "plan": both("{count} plan", "{count} plans"),
    "rank": both("{count} rank", "{count} ranks"),
    "replica": both("{count} replica", "{count} replicas"),
    "row": both("{count} row", "{count} rows"),
    "sample": both("{count} sample", "{count} samples"),
    "step": both("{count} step", "{count} steps"),
    "sync": both("{count} sync", "{count} syncs"),
    "tensor": both("{count} tensor", "{count} tensors"),
    "token": both("{count} token", "{count} tokens"),
    "transfer": both("{count} transfer", "{count} transfers"),
    "virtual GPU": both("{count} virtual GPU", "{count} virtual GPUs"),
    "warning": both("{count} warning", "{count} warnings"),
}
"""Noun -> its templates."""


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
    """Return `1 hop` or `2 hops`. Every noun is in the table below."""
    return say_count(*_COUNTED[noun], number)


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"
