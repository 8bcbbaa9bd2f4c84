"""Published figures beside their plans, in bytes; see `Compared`. Written by `python -m tests.evidence`."""

from __future__ import annotations

ROWS: tuple[tuple[str, str, str, int, int, int, bool], ...] = (
    ("R", "ResNet-50, 64", "reserved", 7_072_000_000, 7_072_000_000, 6_555_000_000, True),
    ("M", "Mistral-7B, 8 x 4096, full", "on the card", 76_257_689_600, 76_257_689_600, 82_689_654_784, True),
    ("F", "ViT-L/16, step", "allocated", 6_000_000_000, 6_000_000_000, 6_114_000_000, True),
    ("R", "ViT-B/16, 64, bfloat16 under autocast", "allocated", 6_239_000_000, 6_239_000_000, 6_164_000_000, True),
)
