"""Inside the layers with folders: they stand in floors, arrows run down, and no files import each other in a circle."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.test_imports import PACKAGE, extra_of, only_for_types

FLOORS = {
    "capture": """
        torch_internals object_fields process_rank interrupts undo devices patching tensors walk validation
        source_code restore stack_sampler other_threads step snapshot recording faults precision data_parallel patches modes
        memory background_births explain recorder
    """.split(),
    "records": """
    schema errors syntax runs site device memory held_memory fault_details finding parallel explanation snapshot trace
        comparison loading
    """.split(),
    "rules": """
        wording edits call_edits found kept_memory registry host_reads placement
        transfers training replicas
    """.split(),
    "gpus": """
        card_models virtual_machine torch_internals patching native_rules state errors parts labels
        call rules machine kernels
        operators gradients tensors autocast comm factories composites scripting cuda session
    """.split(),
}
"""Rooms from the ground up: a folder or a file of its own imports only rooms that stand before it."""

MOST_FILES = 15
"""In one folder: more are not taken in at a glance."""
MOST_IN = {"gpus": 23}
"""Where one flat folder reads better than rooms."""


def modules() -> dict[str, Path]:
    """Dotted name -> file."""
    return {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): file
            for file in PACKAGE.rglob("*.py")}  # fmt: skip


@functools.cache
def arrows(*, with_types: bool) -> dict[str, set[str]]:
    """Module -> modules that it imports anywhere; with those that it names for types alone, or without."""
    known = modules()
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if not with_types:
            tree.body = [node for node in tree.body if not only_for_types(node)]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                targets = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
                inner = {target for target in targets if target in known and target != node.module}
                found[name] |= inner or (targets & known.keys())
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in known}
        found[name].discard(name)
    return found


def room_of(module: str) -> str:
    """`modes` for `devwidget.capture.modes.dispatch_mode`, `recorder` for `devwidget.capture.recorder`."""
    return module.split(".")[2]


def find_circle(found: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, the first one again at the end; none if there is no circle."""
    try:
        tuple(TopologicalSorter(found).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def arrows_up(layer: str, found: dict[str, set[str]]) -> list[str]:
    """Imports inside a layer that go to a room above."""
    floors, inside = FLOORS[layer], f"devwidget.{layer}."
    return [
        f"{source} imports {target}"
        for source, targets in found.items()
        for target in targets
        if source.startswith(inside) and target.startswith(inside)
        and floors.index(room_of(target)) > floors.index(room_of(source))
    ]  # fmt: skip


def test_no_files_import_each_other_in_a_circle():
    """A part may name the class of its whole for types."""
    assert find_circle(arrows(with_types=False)) == []


def test_every_room_stands_on_a_floor():
    for layer, floors in FLOORS.items():
        assert {room_of(name) for name in modules() if name.startswith(f"devwidget.{layer}.")} == set(floors)


def test_arrows_between_rooms_run_down():
    found = arrows(with_types=True)
    assert [arrow for layer in FLOORS for arrow in arrows_up(layer, found)] == []


def test_no_folder_is_crowded():
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py" and not extra_of(file)]
    counts = Counter(file.parent.relative_to(PACKAGE).as_posix() for file in files)
    crowded = {folder: count for folder, count in counts.items() if count > MOST_IN.get(folder, MOST_FILES)}
    assert crowded == {}


def test_every_path_that_contributing_names_exists():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = text[text.index("## I want to") : text.index("## Who may import")]
    named = re.findall(r"`((?:[a-z_]+/)+[\w.]*)`", recipes)
    missing = [path for path in named if not any((root / path).exists() for root in (PACKAGE, PACKAGE.parent))]
    assert named
    assert missing == []


def test_the_tree_in_contributing_shows_every_folder():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = text[text.index("## The packages") : text.index("## I want to")]
    folders = {file.parent for file in PACKAGE.rglob("__init__.py") if file.parent != PACKAGE}
    inside = {folder for folder in folders if extra_of(folder / "extra.py") and folder.parent.name != "extras"}
    folders = {folder.name for folder in folders - inside}
    assert {name for name in folders if f"{name}/" not in tree} == set()
