"""Which line an event bears: the user's, with the library's that it has called; of backward the forward line; never ours."""

import concurrent.futures
import functools
import importlib.util
import textwrap

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.loading.json_io import loads
from devwidget.records.schema.record import dumps


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


@pytest.fixture
def library(tmp_path):
    """An installed package with what a trainer does."""
    path = tmp_path / "site-packages" / "loops.py"
    path.parent.mkdir()
    path.write_text(
        textwrap.dedent("""
            import torch
            from torch import nn

            class Halves(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.first = nn.Linear(4, 4).to("cuda:0")
                    self.second = nn.Linear(4, 2).to("cuda:1")

                def forward(self, rows):
                    hidden = self.first(rows).relu()
                    hidden = hidden.to("cuda:1")
                    return self.second(hidden)

            class Layer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = nn.Linear(4, 2).to("cuda:0")

                def forward(self, rows):
                    return self.inner(rows)

            def train(model, rows):
                out = model(rows)
                out.sum().backward()
        """).lstrip()
    )
    spec = importlib.util.spec_from_file_location("loops", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_thread(layer, rows):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(layer, rows).result()


def in_text(layer, rows):
    names = {"layer": layer, "rows": rows}
    exec("out = layer(rows)", names)
    return names["out"]


SHAPES = {
    "a thread that runs the layer itself": in_thread,
    "code from a text": in_text,
    "an expression from a text": lambda layer, rows: eval("layer(rows)", {"layer": layer, "rows": rows}),
    "a callback of Python": lambda layer, rows: next(map(layer, [rows])),
    "a callback of the library": lambda layer, rows: functools.reduce(lambda rows, layer: layer(rows), [layer], rows),
    "a compiled text without names": lambda layer, rows: eval(compile("f(x)", "<frozen x>", "eval"), {"f": layer, "x": rows}),
    "one line": lambda layer, rows: layer(rows),
}


@pytest.mark.parametrize("call", SHAPES.values(), ids=SHAPES)
def test_no_shape_of_the_stack_stops_the_recorder(call):
    layer = nn.Linear(4, 2).to("cuda:0")
    with devwidget.record(heal=True) as recording:
        recording.attach(layer)
        call(layer, torch.randn(3, 4))
    assert [finding.kind for finding in recording.trace.findings] == ["wrong-device"]
    assert [text for text in recording.trace.not_checked if text.startswith("recorder")] == []


def test_places_below_a_library_bear_its_line_and_that_of_the_user(library):
    model, rows = library.Halves(), torch.randn(3, 4)
    with devwidget.record(heal=True) as recording:
        recording.attach(model)
        library.train(model, rows)
    trace = recording.trace
    (finding,) = trace.findings
    assert finding.fault.text == "library.train(model, rows)"
    assert finding.fault.library.text == "hidden = self.first(rows).relu()"
    hops = [move for move in trace.moves if move.cause == "explicit"]
    assert {(hop.phase, hop.site.library.text) for hop in hops} == {
        ("forward", 'hidden = hidden.to("cuda:1")'),
        ("backward", 'hidden = hidden.to("cuda:1")'),
    }
    assert f"({library.__name__}.py:13)" in str(trace)
    assert loads(dumps(trace)) == trace


def test_a_step_of_a_librarys_model_bears_the_librarys_line_alone_and_edits_nothing_there(library):
    trace = devwidget.trace(library.Layer(), torch.randn(3, 4), verify=False)
    (finding,) = trace.findings
    assert (finding.fault.text, finding.fault.is_users) == ("return self.inner(rows)", False)
    assert all(edit.file == __file__ for fix in finding.fixes for edit in fix.edits)


def test_a_hook_of_the_user_keeps_its_own_line():
    weight = torch.ones(3, device="cuda:0", requires_grad=True)

    def halve(grad):
        return grad * 0.5

    with devwidget.record() as recording:
        product = weight * 2
        product.register_hook(halve)
        product.sum().backward()
    lines = {op.site.text for op in recording.trace.ops if op.phase == "backward" and op.name == "mul"}
    assert lines == {"return grad * 0.5", "product = weight * 2"}


def test_a_graph_that_is_older_bears_the_line_that_called_backward():
    older = (torch.ones(3, requires_grad=True) * 2).sum()
    with devwidget.record() as recording:
        older.backward()
    assert {op.site.text for op in recording.trace.ops if op.phase == "backward"} == {"older.backward()"}


@pytest.mark.parametrize("wrap", [lambda model: model, nn.DataParallel], ids=["alone", "DataParallel"])
def test_no_record_of_a_step_has_a_line_of_ours(wrap):
    model = wrap(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).cuda())
    optimizer = torch.optim.Adam(model.parameters())
    rows, labels = torch.randn(6, 4), torch.randint(2, (6,))
    trace = devwidget.trace(model, rows, loss_fn=nn.CrossEntropyLoss(), target=labels, optimizer=optimizer, verify=False)
    assert "devwidget.trace(" not in dumps(trace)


def test_a_value_of_a_field_is_told_to_come_from_it():
    trace = devwidget.trace(nn.Linear(4, 2).to("cuda:0"), [torch.randn(3, 4)][0], verify=False)
    assert (
        "argument `input` of `linear` is on cpu and comes from the batch; the others are on cuda:0" in trace.findings[0].notes
    )
