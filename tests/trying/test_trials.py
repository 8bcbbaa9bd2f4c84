"""A fix is called verified only if its own text was run."""

import contextlib
import dataclasses
import functools
import logging
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.source_code import frames
from devwidget.capture.step.step import Step
from devwidget.trying import installed_edits, trials
from devwidget.trying.reference_step import Run, are_equal, cured_moves, results_of
from tests.trying.models import offer_instead


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.GRU(6, 4, batch_first=True)

    def forward(self, x):
        hidden = torch.zeros(1, len(x), 4)
        return self.rows(x, hidden)[0]


def test_an_edit_of_forward_is_run_and_leaves_the_code_as_it_was():
    model, before = Reader().to("cuda:0"), Reader.forward.__code__
    (found,) = devwidget.trace(model, torch.ones(2, 3, 6, device="cuda:0")).findings
    assert found.fixes[0].verified
    assert found.fixes[0].edits[0].text.endswith("torch.zeros(1, len(x), 4, device=x.device)")
    assert Reader.forward.__code__ is before


def test_it_can_be_switched_off():
    model = Reader().to("cuda:0")
    (found,) = devwidget.trace(model, torch.ones(2, 3, 6, device="cuda:0"), verify=False).findings
    assert not any(fix.verified for fix in found.fixes)


@pytest.mark.parametrize(("old", "new"), [("x.device", "'cuda:1'"), ("zeros", "ones")], ids=["it fails", "another result"])
def test_a_wrong_candidate_falls_behind_one_that_works(monkeypatch, old, new):
    offer_instead(monkeypatch, lambda text: text.replace(old, new))
    (found,) = devwidget.trace(Reader().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0")).findings
    assert found.fixes[0].verified
    assert new not in found.fixes[0].code


class Shifted(nn.Module):
    def forward(self, x):
        shift = torch.zeros(x.shape[0], 1)
        return x - shift, shift


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def forward(self, x):
        total = torch.zeros(x.shape)
        for part in self.parts:
            total += part(x)
        return total


@pytest.mark.parametrize("model", [Shifted(), Summed()])
def test_a_stray_that_is_returned_may_be_where_the_edit_puts_it(model):
    (found,) = devwidget.trace(model.to("cuda:0"), torch.ones(2, 3, device="cuda:0")).findings
    assert found.fixes[0].verified
    assert found.fixes[0].edits[0].text.endswith("device=x.device)")


def test_an_output_that_goes_to_the_cpu_by_an_edit_is_another_result():
    trace = devwidget.trace(Shifted(), torch.ones(2, 3, device="cuda:0"), verify=False)
    on_gpu = torch.ones(2, device="cuda:0")
    assert are_equal([on_gpu.cpu()], [on_gpu], cured_moves(trace))
    assert not are_equal([on_gpu], [on_gpu.cpu()], cured_moves(trace))
    assert not are_equal([on_gpu.cpu()], [on_gpu.to("cuda:1")], cured_moves(trace))


class Stopping(Reader):
    def forward(self, x):
        hidden = torch.zeros(1, len(x), 4)
        out = self.rows(x, hidden)[0]
        for _ in range(3):
            if out.sum().item() > 100:
                break
            out = out + 1
        return out * torch.ones(4)


def test_edits_of_several_findings_are_tried_though_one_finding_has_none():
    found = devwidget.trace(Stopping().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0")).findings
    first = {finding.kind: [f.fixes[0] for f in found if f.kind == finding.kind] for finding in found}
    assert [fix.verified for fix in first["wrong-device"]] == [True, True]
    assert not any(fix.verified for fix in first["host-sync"])


def test_a_method_is_found_from_its_class_alone():
    assert Stopping.forward in installed_edits.find_functions({__file__}, [Stopping]).by_file[__file__]


def test_a_finding_is_verified_beside_one_whose_edits_fail(monkeypatch):
    offer_instead(monkeypatch, lambda text: text.replace("ones(4", "zeros(4"))
    found = devwidget.trace(Stopping().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0")).findings
    first = [finding.fixes[0] for finding in found if finding.kind == "wrong-device"]
    assert [fix.verified for fix in first] == [True, True]
    assert not any("zeros(4" in edit.text for fix in first for edit in fix.edits)


def judged(trace, error=""):
    """What becomes of the findings of a trace whose trials all end alike."""
    model, batch = Reader().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0")

    def again(heal, inputs, inside, twice):
        with contextlib.suppress(RuntimeError) if heal else contextlib.nullcontext():
            model(inputs())
        run = Run(dataclasses.replace(trace, error=error), results_of({}, model, None))
        return [run] if error else [run, run]

    return trials.try_fixes(trace, None, Step(model, batch), again, is_asked=False)


def test_edits_that_have_all_failed_are_not_offered():
    trace = devwidget.trace(Reader().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0"), verify=False)
    (found,) = judged(trace, error="RuntimeError: something else").findings
    assert found.fixes == ()
    assert any(
        note.startswith("with these edits the step still fails or gives a different result: create it") for note in found.notes
    )
    assert "create it on the right device: the step fails: RuntimeError: something else" in found.notes


def test_no_trial_begins_late(monkeypatch):
    hours = iter(range(0, 36000, 3600))
    monkeypatch.setattr(trials, "LAST_BEGIN_SECONDS", 30.0)
    monkeypatch.setattr(trials, "clock", lambda: next(hours))
    trace = devwidget.trace(Reader().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0"), verify=False)
    (found,) = judged(trace, error="RuntimeError: something else").findings
    assert {fix.not_tried for fix in found.fixes if fix.edits} == {"the trials before it took 30 s"}


def test_two_findings_of_one_line_are_not_taken_for_each_other():
    trace = devwidget.trace(Reader().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0"), verify=False)
    (found,) = trace.findings
    twice = dataclasses.replace(trace, findings=(found, dataclasses.replace(found, headline="another", fixes=())))
    assert not any(fix.verified for each in judged(twice).findings for fix in each.fixes)


def test_a_fix_whose_trial_runs_out_of_memory_is_kept():
    model = Reader().to("cuda:0")
    trace = devwidget.trace(model, torch.ones(2, 3, 6, device="cuda:0"), verify=False)
    assert judged(trace, error="OutOfMemoryError: CUDA out of memory").findings == trace.findings


def test_what_a_trial_prints_warns_and_logs_is_not_seen(recwarn, caplog, capsys):
    class Talking(Reader):
        def forward(self, x):
            print("forward")
            warnings.warn("slow", stacklevel=1)
            logging.getLogger("user").warning("slow")
            hidden = torch.zeros(1, len(x), 4)
            return self.rows(x, hidden)[0]

    warnings.simplefilter("always")
    (found,) = devwidget.trace(Talking().to("cuda:0"), torch.ones(2, 3, 6, device="cuda:0")).findings
    assert found.fixes[0].verified
    assert len(recwarn) == len(caplog.records) == 1
    assert capsys.readouterr().out == "forward\n"


def test_an_edit_after_which_the_host_waits_is_kept_and_not_called_verified():
    class Counted(nn.Module):
        def forward(self, x):
            mask = torch.ones(3)
            if mask.sum().item() > 5:
                return x
            return x * mask

    (found,) = devwidget.trace(Counted(), torch.ones(3, device="cuda:0")).findings
    (waiting,) = [fix for fix in found.fixes if fix.warns]
    assert (waiting.code, waiting.verified) == ("mask = torch.ones(3, device=x.device)", False)
    assert waiting.warns.startswith("host-sync at line ")
    assert f"with it the step runs, with {waiting.warns})" in str(found)


def nested_model():
    class Shifted(nn.Module):
        def forward(self, x):
            return x + torch.ones(6)

    return functools.reduce(lambda inner, _: nn.Sequential(inner), range(5), Shifted())


KEEPS_MUCH = """
import functools, devwidget, torch
from torch import nn

def nested_model():
    class Shifted(nn.Module):
        def forward(self, x):
            return x + torch.ones(6)

    return functools.reduce(lambda inner, _: nn.Sequential(inner), range(5), Shifted())

def main():
    model, _kept = nested_model(), [[[number, object()] for number in range(256)] for _ in range(256)]
    (found,) = devwidget.trace(model, torch.ones(2, 6, device="cuda:0")).findings
    print(found.fixes[0].verified)

with devwidget.simulate(gpus=1):
    main()
"""


@pytest.mark.slow
@pytest.mark.process
def test_what_a_program_keeps_elsewhere_does_not_hide_the_functions_of_the_model(tmp_path):
    """In a process of its own: what a suite of tests keeps is no program's."""
    path = tmp_path / "keeps_much.py"
    path.write_text(KEEPS_MUCH)
    assert subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout == "True\n"


def test_an_edit_whose_function_was_not_found_among_too_many_objects_says_so(monkeypatch):
    monkeypatch.setattr(frames, "MOST_OBJECTS", 1)
    (found,) = devwidget.trace(nested_model(), torch.ones(2, 6, device="cuda:0")).findings
    assert "the program holds more than" in found.fixes[0].not_tried
    assert not found.fixes[0].verified


def test_a_class_of_main_is_the_users_whatever_runs_the_program(tmp_path, monkeypatch):
    names = {"__name__": "__main__"}
    file = tmp_path / "program.py"
    forward = "def forward(self, x):\n        return x + torch.ones(2)\n"
    file.write_text(f"import torch\nfrom torch import nn\nclass Net(nn.Module):\n    {forward}")
    exec(compile(file.read_text(), str(file), "exec"), names)
    (found,) = devwidget.trace(names["Net"](), torch.ones(2, device="cuda:0")).findings
    assert found.fixes[0].verified
