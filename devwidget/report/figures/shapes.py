"""Shapes of our own SVG."""

from __future__ import annotations

from devwidget.report.style.palette import PAPER
from devwidget.report.style.safe_text import Markup, html_element, join_html

SANS_FONT = "var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif)"
MONO_FONT = "var(--dw-mono, ui-monospace, SFMono-Regular, Menlo, Consolas, monospace)"
MONO, SANS, SMALL = 7.3, 6.6, 6.1
"""Pixels of a letter: of 12 pixels in both fonts, and of 11."""


def draw_text(x: float, y: float, text: str, **style: str) -> Markup:
    """A line of text, from its left end on the line that it stands on."""
    return html_element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", **style)


def draw_rectangle(x: float, y: float, width: float, height: float, radius: float, **style: str) -> Markup:
    """A rectangle with round corners."""
    return html_element(
        "rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{max(0.0, width):.1f}", height=f"{height:.1f}", rx=f"{radius:g}", **style
    )


def draw_dot(x: float, y: float, hue: str, *, is_round: bool) -> Markup:
    """A mark of a device: round, but for the cpu."""
    if is_round:
        return html_element("circle", cx=f"{x:.1f}", cy=f"{y:g}", r="4", fill=hue)
    return draw_rectangle(x - 4, y - 4, 8, 8, 1, fill=hue)


def draw_cross(x: float, y: float, hue: str) -> Markup:
    """A filled circle with a cross: what is wrong."""
    arms = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
    circle = html_element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="6.5", fill=hue)
    return join_html(circle, html_element("path", d=arms, stroke=PAPER, **{"stroke-width": "1.6"}))
