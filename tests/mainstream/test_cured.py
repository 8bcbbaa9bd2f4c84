"""Small programs with one fault each: what is said of it, which line its first edit changes, and that it runs after that."""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile
from unittest import mock

import pytest

from devwidget import fix_writer
from tests.mainstream.test_mainstream import marked, run

HERE = pathlib.Path(__file__).parent / "cured"
SAID = {
    "attribute_made_in_forward": ("unregistered-tensor", "grid = torch.arange(y.shape[0], dtype=y.dtype, device=y.device)"),
    "branch_of_the_first_round": ("wrong-device", "state = torch.zeros(3, 2, device=x.device)"),
    "branch_not_run": (
        "wrong-device",
        "nonterminal = nonterminal.to(nextvalues.device)",
    ),
    "buffer_of_an_injected_module": (
        "unregistered-tensor",
        'self.gain = torch.full((base.out_features,), 2.0, device="cuda:0")',
    ),
    "device_of_an_array": ("wrong-device", "adjacency = adjacency.to(features.device)"),
    "loader_moved_in_the_data_set": ("wrong-device", "y = y.to(x.device)"),
    "edit_on_the_whole_call": ("wrong-device", "out = conv(x, edges.to(x.device))"),
    "file_read_by_a_library": ("wrong-device", "data = data.to(model.weight.device)"),
    "graph_handed_out": ("wrong-device", "graph = graph.to(device)"),
    "loader_not_moved": ("wrong-device", 'x, y = x.to("cuda:0"), y.to("cuda:0")'),
    "loader_of_a_library": ("wrong-device", "x = x.to(device)"),
    "loader_of_dicts": ("wrong-device", "batch = {key: value.to(device) for key, value in batch.items()}"),
    "loader_of_pairs": ("wrong-device", "batch = [each.to(self.device) for each in batch]"),
    "loader_of_targets": (
        "wrong-device",
        "targets = [{key: value.to(device) for key, value in each.items()} for each in targets]",
    ),
    "mask_named_bias": (
        "unregistered-tensor",
        'self.register_buffer("bias", torch.tril(torch.ones(4, 4)).view(1, 4, 4), persistent=False)',
    ),
    "methods_of_an_agent": ("wrong-device", "agent = Agent().to(device)"),
    "metric_in_a_dict": (
        "wrong-device",
        'self.head, self.accs = nn.Linear(4, 2), {"val": Accuracy().to("cuda:0")}',
    ),
    "model_in_another_file": ("wrong-device", 'model = Net().to("cuda:0")'),
    "move_before_pin": ("wrong-device", "y = y.to(x.device)"),
    "name_bound_later": ("wrong-device", "x, y = torch.randn(4, 4).to(device), torch.randint(0, 5, (4,), device=device)"),
    "network_behind_transforms": ("wrong-device", 'generator = Generator().to("cuda:0")'),
    "other_models_attribute": ("wrong-device", "target = Actor().to(device)"),
    "other_place_built": ("wrong-device", "model = GPT(4).to(device)"),
    "own_assert": ("unregistered-tensor", 'self.register_buffer("cos", torch.ones(16, 4))'),
    "own_check_in_a_function": ("wrong-device", "k = torch.randn(3, 4, device=q.device)"),
    "own_linear_in_a_list": ("unregistered-tensor", "self.layers = nn.ModuleList([Layer(4, 4), Layer(4, 2)])"),
    "parallel_misplaced": ("parallel-misplaced", 'model.to("cuda:0")'),
    "parallel_misplaced_cuda": (
        "parallel-misplaced",
        "model = torch.nn.DataParallel(nn.Linear(4, 2)).to('cuda:0')",
    ),
    "plain_attribute_of_a_method": ("wrong-device", 'self.atoms = torch.linspace(0, 1, 3, device="cuda:0")'),
    "replay_buffer_device": ("wrong-device", "data = data.to(net.weight.device)"),
    "scaler_state": ("optimizer-misplaced", "for parameter, kept in optimizer.state.items():"),
    "state_of_a_library": ("wrong-device", "metric = MetricCollection([Accuracy(5)]).to(device)"),
    "target_network_forgotten": ("wrong-device", 'target = Net().to("cuda:0")'),
    "target_taken_away": ("wrong-device", "x, y = x.to(device), y.to(device)"),
}
"""Program -> the kind of its finding, and the line that its first edit writes."""
QUICK = {"branch_not_run", "graph_handed_out", "loader_of_pairs", "mask_named_bias", "move_before_pin", "other_place_built",
         "own_assert", "own_check_in_a_function", "scaler_state", "state_of_a_library"}  # fmt: skip
FOREIGN = ("biglib", "network_apart", "tinydata", "tinyfile", "tinymodel")


@pytest.fixture(autouse=True)
def foreign_modules(monkeypatch, tmp_path):
    """Modules that the programs write and import are gone after each run, with their folders."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(HERE / "parts")])
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    yield
    for name in FOREIGN:
        sys.modules.pop(name, None)


def ran(path):
    for name in FOREIGN:
        sys.modules.pop(name, None)
    with mock.patch.object(sys.modules["__main__"], "__file__", str(path), create=True):  # as `python program.py` has it
        return run(path)


def placed(name, folder):
    return pathlib.Path(shutil.copy(HERE / f"{name}.py", folder))


@pytest.mark.parametrize("name", marked(SAID, QUICK.__contains__))
def test_the_first_edit_cures_the_program(name, tmp_path):
    kind, line = SAID[name]
    path = placed(name, tmp_path)
    (finding,) = ran(path).findings
    edits = fix_writer.edits_by_file([finding])[str(path)]
    assert finding.kind == kind
    assert line in [row.strip() for edit in edits for row in edit.text.splitlines()]
    path.write_text(fix_writer.apply_to_text(str(path), edits), encoding="utf-8")
    again = ran(path)
    assert not again.error
    assert [each.kind for each in again.findings if each.severity != "info"] == []


def test_every_program_is_a_test():
    others = {"generated_code", "item_in_list"}
    assert {path.stem for path in HERE.glob("*.py")} == SAID.keys() | others


@pytest.mark.slow
def test_a_value_that_a_list_of_numbers_keeps_has_no_edit():
    (finding,) = ran(HERE / "item_in_list.py").findings
    assert (finding.kind, finding.severity) == ("host-sync", "info")
    assert not any(fix.edits for fix in finding.fixes)


@pytest.mark.slow
def test_code_that_a_library_wrote_is_not_edited():
    (finding,) = ran(HERE / "generated_code.py").findings
    assert finding.birth.file.endswith("generated_code.py")
    assert {edit.file for fix in finding.fixes for edit in fix.edits} <= {finding.birth.file}


@pytest.mark.parametrize(("name", "line"), [("branch_not_run", 9), ("branch_of_the_first_round", 9)])
def test_only_a_branch_that_ran_has_made_a_tensor(name, line):
    (finding,) = ran(HERE / f"{name}.py").findings
    assert finding.birth.line == line


@pytest.mark.slow
def test_what_forward_made_anew_did_not_stay_behind():
    (finding,) = ran(HERE / "attribute_made_in_forward.py").findings
    assert finding.birth.function == "forward"
    assert "stayed" not in str(finding.headline)


@pytest.mark.slow
def test_the_result_of_the_failing_call_is_no_place_to_move_its_argument():
    (finding,) = ran(HERE / "edit_on_the_whole_call.py").findings
    assert not any(").to(" in edit.text.replace("edges.to(", "") for fix in finding.fixes for edit in fix.edits)
