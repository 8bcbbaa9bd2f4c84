"""A panel is bound to the name of its model: what the cells of a notebook do to that, and what the panel says of it."""

import gc
import weakref

import pytest

from devwidget.panel import refresh
from tests.cells import ipython

BUILD = (
    "import torch\nfrom torch import nn\nimport devwidget\n"
    'layer = nn.Linear(4, WIDTH).to("cuda:0")\nrows = torch.randn(3, 4)\nkept = weakref.ref(layer)\n'
)
SHOW = "panel = devwidget.show(layer, rows)\npanel"


class Notebook:
    """Cells of a shell, each with an id as a notebook gives it; the page shows each panel."""

    def __init__(self, shell):
        self.shell, self.names = shell, shell.user_ns
        self.names |= {"weakref": weakref, "fails": False}

    def run(self, text, cell, succeeds=True):
        result = self.shell.run_cell(text, store_history=True, cell_id=cell)
        assert result.success is succeeds, result
        if "panel" in self.names:
            self.names["panel"].view._view_count = 1

    @property
    def panel(self):
        return self.names["panel"]

    def apply(self):
        """Trace and apply the first fix, as the page does; the text of the cell after it."""
        self.run("panel.run_trace()", "trace")
        self.panel.control.send = lambda answer: None
        self.panel.control._handle_custom_msg({"id": 1, "ask": "apply", "finding": 0, "fix": 0}, [])
        self.panel.control._handle_custom_msg({"id": 2, "ask": "applied"}, [])
        (edit,) = self.panel.view.applied["cells"]
        return edit["raw"].replace("\n".join(edit["old"]), "\n".join(edit["new"]))


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.setattr("devwidget.apply_fix._cells_since", {})
    with ipython() as shell:
        made = Notebook(shell)
        # as a kernel does, which knows a cell by its own text and not by what IPython makes of it
        shell.compile.get_code_name = lambda raw, code, number: f"<ipython-input-{number}-follows>"
        made.run("import devwidget\ndevwidget.simulate(gpus=1).start()", "first")
        yield made
        shell.run_cell("panel.close(); devwidget.gpus.active().stop()")
        refresh.stop_watching(shell)


def build(width=2):
    return BUILD.replace("WIDTH", str(width))


def test_a_panel_follows_its_name_to_a_new_object_and_traces_it_as_the_one_before(notebook):
    notebook.run(build(2), "build")
    notebook.run(SHOW, "show")
    before = notebook.panel.run_trace()
    notebook.run(build(7), "build")
    panel = notebook.panel
    assert (panel.view.gone, panel.snapshot.modules[0].tensors[0].shape) == (False, (7, 4))
    assert "`layer` was bound to a new object, so the step was traced again" in panel.view.status["text"]
    assert panel.kept is before
    assert panel.trace is not before
    assert "sides" in panel.view.compared
    panel.run_trace()
    assert "traced again" not in panel.view.status["text"]


def test_without_a_trace_before_nothing_is_traced_when_the_name_is_bound_again(notebook):
    notebook.run(build(2), "build")
    notebook.run(SHOW, "show")
    notebook.run(build(7), "build")
    assert notebook.panel.trace is None


@pytest.mark.parametrize("batch", ["torch.randn(3, 4)", "drawn"])
def test_a_batch_that_a_trace_would_draw_is_traced_on_request_only(notebook, batch):
    notebook.run(build(2), "build")
    notebook.run(f"drawn = iter([(rows,), (rows,)])\npanel = devwidget.show(layer, batch_expression={batch!r})\npanel", "show")
    before = notebook.panel.run_trace()
    notebook.run("torch.manual_seed(0)\n" + build(7) + "state = torch.get_rng_state()", "build")
    panel = notebook.panel
    assert panel.trace is before
    assert notebook.names["torch"].equal(notebook.names["state"], notebook.names["torch"].get_rng_state())
    assert "`layer` was bound to a new object after this trace" in panel.view.status["text"]
    assert panel.kept is before


def test_a_cell_that_raises_after_it_has_bound_the_name_is_not_traced(notebook):
    notebook.run(build(2), "build")
    notebook.run(SHOW, "show")
    before = notebook.panel.run_trace()
    notebook.run(build(7) + "1 / 0", "build", succeeds=False)
    assert notebook.panel.trace is before


def test_show_that_is_run_again_goes_on_with_the_trace_before(notebook):
    notebook.run(build(2), "build")
    notebook.run(SHOW, "show")
    before, old = notebook.panel.run_trace(), notebook.panel
    notebook.run(SHOW, "show")
    panel = notebook.panel
    assert panel is not old
    assert (panel.kept is before, panel.trace is not before, old.trace is before) == (True, True, True)
    assert "The cell was re-run, so the step was traced again" in panel.view.status["text"]
    notebook.run("other = 1", "other")
    assert (panel.kept is before, "sides" in panel.view.compared) == (True, True)
    old.close()


def test_show_in_another_cell_begins_anew(notebook):
    notebook.run(build(2), "build")
    notebook.run(SHOW, "show")
    notebook.panel.run_trace()
    old = notebook.panel
    notebook.run(SHOW, "other")
    assert notebook.panel.trace is None
    old.close()


def test_an_edit_of_the_cell_that_builds_the_model_is_traced_on_the_new_object(notebook):
    notebook.run(build(), "build")
    notebook.run(SHOW, "show")
    edited = notebook.apply()
    assert (notebook.panel.view.applied["works"], notebook.panel.view.applied["traced"]) == ("cell", False)
    notebook.run(edited, "build")
    applied = notebook.panel.view.applied
    assert (notebook.panel.view.gone, applied["works"], applied["traced"]) == (False, "now", True)
    assert notebook.panel.view.compared["fixed"]
    assert applied["cells"][0]["number"] == notebook.shell.execution_count - 1  # where Undo finds it


def test_show_in_the_cell_that_builds_the_model_goes_on_with_what_was_applied(notebook):
    notebook.run(build() + SHOW, "build")
    before, edited = notebook.panel, notebook.apply()
    notebook.run(edited, "build")
    assert notebook.panel is not before
    assert notebook.panel.view.applied["traced"]
    assert notebook.panel.view.compared["fixed"]
    assert before.view.applied == {}
    before.close()


def test_a_panel_continues_the_last_one_of_its_cell_and_none_before(notebook, monkeypatch):
    shown = []
    monkeypatch.setattr(refresh, "_panels", Ordered())
    for width in (2, 3, 4, 5):
        notebook.run(build(width) + SHOW, "build")
        shown.append(notebook.panel)
        if width == 2:
            notebook.panel.run_trace()
    traces = [id(panel.trace) for panel in shown]
    assert len(set(traces)) == len(shown)  # each was traced again by itself
    assert shown[-1].kept is shown[-2].trace
    for panel in shown[:-1]:
        panel.close()


class Ordered(list):
    """Panels from the oldest on, which a set may give first."""

    def add(self, panel):
        if panel not in self:
            self.append(panel)

    def discard(self, panel):
        if panel in self:
            self.remove(panel)


def test_a_cell_that_raises_is_not_said_to_be_traced_and_is_once_it_was_corrected(notebook):
    notebook.run(build() + "assert not fails", "build")
    notebook.run(SHOW, "show")
    edited, panel = notebook.apply(), notebook.panel
    notebook.names["fails"] = True
    notebook.run(edited, "build", succeeds=False)
    assert not panel.view.applied["traced"]
    assert "The cell raised an exception, so nothing was traced" in panel.view.status["text"]
    notebook.run(edited.replace("assert not fails", ""), "build")
    assert panel.view.applied["traced"]


@pytest.mark.parametrize("leaves", ["del layer", "del rows"])
def test_a_trace_that_fails_after_the_cell_has_run_is_not_said_to_be_done(notebook, leaves):
    notebook.run(build() + f"if fails:\n    {leaves}\n", "build")
    notebook.run(SHOW, "show")
    edited, panel, trace = notebook.apply(), notebook.panel, notebook.panel.trace
    notebook.names["fails"] = True
    notebook.run(edited, "build")
    assert (panel.view.applied["traced"], panel.view.status["kind"]) == (False, "refused")
    assert panel.trace is trace


def test_a_panel_comes_back_when_the_name_of_its_deleted_model_is_bound_again(notebook):
    notebook.run(build(), "build")
    notebook.run(SHOW, "show")
    notebook.run("del layer", "delete")
    assert notebook.panel.view.gone
    notebook.run(build(), "build")
    assert not notebook.panel.view.gone
    assert notebook.panel.run_trace().error == ""


def test_panels_of_a_loop_stay_with_their_own_models(notebook):
    notebook.run("import torch\nfrom torch import nn\nmodels = [nn.Linear(width, 1) for width in (2, 3)]", "build")
    notebook.run("panels = []\nfor model in models:\n    panels.append(devwidget.show(model))\n    panel = panels[-1]", "show")
    notebook.run("model = nn.Linear(9, 1)", "other")
    for panel in notebook.names["panels"]:
        panel.refresh()
    shapes = [panel.snapshot.modules[0].tensors[0].shape for panel in notebook.names["panels"]]
    assert shapes == [(1, 2), (1, 9)]
    notebook.names["panels"][0].close()


def test_a_model_that_is_bound_again_is_freed_beside_its_panel(notebook):
    notebook.run(build(), "build")
    notebook.run(SHOW, "show")
    notebook.panel.run_trace()
    first = notebook.names["kept"]
    notebook.run(build(), "build")
    gc.collect()
    assert first() is None
