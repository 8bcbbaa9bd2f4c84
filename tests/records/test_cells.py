"""What a notebook cell is called."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from devwidget.records import site
from devwidget.records.site import Site, cell_label

CELL = "/tmp/marimo_7/__marimo__cell_{}_.py"


@pytest.fixture
def marimo(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The cells of a notebook of marimo, by their names there."""
    cells: dict[str, object] = {"Hbol": None, "MJUe": None}
    context = SimpleNamespace(safe_get_context=lambda: SimpleNamespace(graph=SimpleNamespace(cells=cells)))
    monkeypatch.setitem(sys.modules, "marimo._runtime.context", context)
    monkeypatch.setattr(site, "_marimo_numbers", {})
    return cells


def test_a_cell_of_marimo_is_counted_in_the_order_of_the_notebook(marimo: dict[str, object]) -> None:
    assert [cell_label(CELL.format(name)) for name in marimo] == ["cell[1]", "cell[2]"]


def test_a_cell_of_marimo_that_was_edited_keeps_its_number(marimo: dict[str, object]) -> None:
    first = cell_label(CELL.format("Hbol"))
    marimo["Hbol"] = marimo.pop("Hbol")  # marimo registers it anew, behind the others
    assert cell_label(CELL.format("Hbol")) == first


def test_a_cell_of_another_session_has_no_number() -> None:
    assert cell_label(CELL.format("Vxnm")) == cell_label("/tmp/ipykernel_12/345.py") == "cell"
    assert cell_label("/home/user/marimo.py") == ""


def test_a_place_names_the_cell_and_not_the_file_that_ipython_keeps_it_in() -> None:
    assert str(Site("/tmp/ipykernel_12/345.py", 3)) == "cell:3"
