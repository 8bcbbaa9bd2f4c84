"""Draw docs/pictures/layers.svg from the imports of the package: python docs/build_layers.py.

A box is a layer, a line from it down leads to one that it imports. What a layer reaches by way of another is not drawn twice.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
DRAWING = ROOT / "docs" / "pictures" / "layers.svg"
sys.path.insert(0, str(ROOT))  # for what the tests know of imports

from tests.test_imports import imports, layer_of, target_of  # noqa: E402

_API = (
    "recording",
    "allowed_findings",
    "live_model",
    "post_mortem",
    "saved_files",
    "trying",
    "fix_writer",
    "apply_fix",
)
BELONGS_TO = {
    **dict.fromkeys(_API, "api"),
    "pytest_explainer": "pytest_plugin",
    "__main__": "cli",
}
"""Files that are halves of another; each is drawn with it. """
DOORS = {"__init__", "_version", "integrations"}
"""Left out: every layer may go through them."""
LAYERS = {
    "records": ("facts", 2),
    "capture": ("reads torch", 0.5),
    "memory": ("whose bytes", 4),
    "rules": ("judge", 2),
    "language": ("translations", 5),
    "gpus": ("virtual GPUs", 0),
    "extras": ("none is needed", 3),
    "views": ("shape", 4),
    "report": ("words", 4),
    "panel": ("screen", 4),
    "api": ("wires them", 2),
    "magics": ("IPython", 1),
    "cli": ("shell", 2),
    "pytest_plugin": ("test suites", 3),
}
"""Layer -> what it does in a word or two, and its column."""
WIDTH, HEIGHT, ACROSS, DOWN = 132, 44, 176, 96
Arrows = Mapping[str, set[str]]
"""Layer -> the layers that it imports."""


def arrows() -> dict[str, set[str]]:
    """What really imports what."""
    found: dict[str, set[str]] = {}
    for file, name in imports():
        parts = name.split(".")
        asks_the_registry = parts[1:2] == ["extras"] and not target_of(name)[1]
        if parts[0] != "devwidget" or len(parts) == 1 or asks_the_registry or file.parent.name == "extras":
            continue
        source, target = (BELONGS_TO.get(each, each) for each in (layer_of(file), parts[1]))
        if source != target and {source, target}.isdisjoint(DOORS):
            found.setdefault(source, set()).add(target)
    return found


def drawn(found: Arrows) -> dict[str, set[str]]:
    """Without the arrows that only repeat a way that others make."""
    return {
        source: {to for to in targets if not any(to in reached(other, found) for other in targets - {to})}
        for source, targets in found.items()
    }


def reached(layer: str, found: Arrows) -> set[str]:
    """All layers below one."""
    targets = found.get(layer, set())
    return targets.union(*(reached(each, found) for each in targets))


def levels(found: Arrows) -> dict[str, int]:
    """Height of each layer: it stands above all that it imports."""
    height: dict[str, int] = {}
    for layer in TopologicalSorter(found).static_order():
        height[layer] = max((height[each] + 1 for each in found.get(layer, ())), default=0)
    return height


def drawing() -> str:
    """The picture."""
    found = arrows()
    height = levels(found)
    top = max(height.values())
    place = {layer: (ACROSS * (column + 0.5), DOWN * (top - height[layer]) + HEIGHT) for layer, (_, column) in LAYERS.items()}
    lines = [_line(place[source], place[to]) for source, targets in sorted(drawn(found).items()) for to in sorted(targets)]
    boxes = [_box(layer, *place[layer]) for layer in LAYERS]
    size = f"{6 * ACROSS} {DOWN * top + 2 * HEIGHT}"
    style = 'font-family="sans-serif" text-anchor="middle" role="img"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" {style}>'
    title = "<title>Layers of devwidget, and which imports which</title>"
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    arrow = (
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#667"/></marker>'
    )
    return "\n".join([head, title, ground, arrow, *lines, *boxes, "</svg>"]) + "\n"


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to_x, to_y) = start, end
    path = f"M{x:g} {y + HEIGHT / 2:g} L{to_x:g} {to_y - HEIGHT / 2:g}"
    return f'<path d="{path}" stroke="#667" fill="none" marker-end="url(#tip)"/>'


def _box(layer: str, x: float, y: float) -> str:
    size = f'x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}"'
    return (
        f'<g><rect {size} rx="6" fill="#eef2fb" stroke="#667"/>'
        f'<text x="{x:g}" y="{y - 2:g}" font-size="14" font-weight="bold" fill="#123">{escape(layer)}</text>'
        f'<text x="{x:g}" y="{y + 14:g}" font-size="11" fill="#456">{escape(LAYERS[layer][0])}</text></g>'
    )


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
