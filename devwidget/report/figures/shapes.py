"""Fonts and colours of our own SVG; `templates/shapes.svg.j2` has its shapes."""

from __future__ import annotations

from devwidget.report.style.palette import PAPER, SOFT_INK, WRONG

SANS_FONT = "var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif)"
MONO_FONT = "var(--dw-mono, ui-monospace, SFMono-Regular, Menlo, Consolas, monospace)"
MONO, SANS, SMALL = 7.3, 6.6, 6.1
"""Pixels of a letter: of 12 pixels in both fonts, and of 11."""
COLOURS = {"PAPER": PAPER, "SOFT_INK": SOFT_INK, "WRONG": WRONG}
"""Names of colours in templates."""
