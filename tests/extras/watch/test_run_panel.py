"""A watched run in the panel: live with its model, or of a file, and the steps that it opens."""

import gc

import pytest
import torch

import devwidget
from devwidget.records.errors import DevwidgetError, UnknownNameError
from tests.panel.test_panel_follows import SHOW, build
from tests.panel.test_panel_follows import notebook as notebook


def test_a_run_that_was_watched_has_its_tab_and_its_steps_open():
    model = torch.nn.Linear(2, 2)
    panel = devwidget.show(model)
    assert "summary" not in panel.view.watched
    with devwidget.watch(model) as run:
        for _ in range(12):
            model(torch.ones(1, 2)).sum().backward()
        panel.sample_memory()
        assert panel.live.watched["summary"] == "Watched run of Linear: 12 steps, no findings"
        assert panel.live.watched["over"] == panel.view.watched["drawn"]
    panel.refresh()
    assert [step["step"] for step in panel.view.watched["recorded"]] == [10]
    panel.show_recorded(10)
    assert panel.trace == run.recorded[10]
    assert panel.view.status["text"].startswith("step 10 was recorded: first steps done")
    with pytest.raises(UnknownNameError, match="step 11 was not recorded"):
        panel.show_recorded(11)
    panel.close()


def test_a_run_is_shown_live_with_its_model_and_from_its_file_without(tmp_path):
    model = torch.nn.Linear(2, 2)
    with devwidget.watch(model, path=tmp_path / "watch.jsonl") as run:
        for _ in range(12):
            model(torch.ones(1, 2)).sum().backward()
    for shown, facts in ((run, "24 B"), (devwidget.open(tmp_path / "watch.jsonl"), "12 steps")):
        panel = devwidget.show(shown)
        assert (panel.view.opens, panel.view.head["title"], panel.view.head["bytes"]) == ("Watch", "Linear", facts)
        panel.show_recorded(10)
        assert panel.trace == run.recorded[10]
        panel.close()
    with pytest.raises(DevwidgetError, match="has no model to trace"):
        devwidget.show(run.result).run_trace()


@pytest.mark.parametrize("ends", [True, False])
def test_a_watched_model_that_is_bound_again_is_freed_and_its_panel_says_so(notebook, ends, capsys):
    notebook.shell.run_line_magic("load_ext", "devwidget")
    notebook.run(build(), "build")
    notebook.run(SHOW, "show")
    notebook.run("%devwidget watch layer\nfor _ in range(3):\n    layer(rows.to('cuda:0'))", "watch")
    first = notebook.names["kept"]
    if ends:
        notebook.run("%devwidget watch off", "off")
    notebook.run(build(), "build")
    gc.collect()
    assert first() is None
    assert ends or "`layer` is bound to a new object, so its watched run has ended" in capsys.readouterr().out
    (note,) = notebook.panel.view.watched["not_checked"]
    assert note.startswith("`layer` was bound to a new object after this run")
    notebook.shell.run_line_magic("unload_ext", "devwidget")
