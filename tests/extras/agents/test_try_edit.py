"""An edit is tried in memory: what cannot be tried is answered in a sentence, and nothing of the user is changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import devwidget

SHIFT = "        shift = torch.linspace(0, 1, 4)\n"
RIGHT = f"-{SHIFT}+        shift = torch.linspace(0, 1, 4, device=x.device)\n"


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        shift = torch.linspace(0, 1, 4)
        return self.layer(x) + shift


@pytest.fixture(autouse=True)
def _gpus() -> Iterator[None]:
    with devwidget.simulate(gpus=2):
        yield


def make():
    return Shifted().to("cuda:0"), torch.ones(2, 4, device="cuda:0")


def test_nothing_is_changed() -> None:
    model, batch = make()
    optimizer = torch.optim.Adam(model.parameters())
    code, values, random = Shifted.forward.__code__, [p.clone() for p in model.parameters()], torch.get_rng_state()
    evidence = devwidget.try_edit(RIGHT, model, batch, loss_fn=torch.sum, optimizer=optimizer)
    assert (evidence.verdict, evidence.runs) == ("works", 8)
    assert "its values and 2 gradients agree" in str(evidence)
    assert Shifted.forward.__code__ is code
    assert all(map(torch.equal, model.parameters(), values))
    assert {parameter.device for parameter in model.parameters()} == {torch.device("cuda:0")}
    assert (model.calls, model.layer.weight.grad, optimizer.state_dict()["state"]) == (0, None, {})
    assert torch.equal(torch.get_rng_state(), random)


def test_a_function_that_builds_the_step_draws_the_same_numbers_twice() -> None:
    random = torch.get_rng_state()
    evidence = devwidget.try_edit(RIGHT, make)
    assert "its values agree with the repaired step" in str(evidence)
    assert torch.equal(torch.get_rng_state(), random)


def test_line_numbers_and_names_of_files_may_be_wrong() -> None:
    head = "--- a/other.py\n+++ b/other.py\n@@ -900,2 +900,2 @@\n"
    diff = f"{head}{RIGHT}         return self.layer(x) + shift\n"
    assert devwidget.try_edit(diff, *make()).verdict == "works"


def test_an_edit_of_a_constructor_asks_for_the_function_that_builds() -> None:
    diff = "-        self.layer = nn.Linear(4, 4)\n+        self.layer = nn.Linear(4, 4, bias=False)\n         self.calls = 0\n"
    evidence = devwidget.try_edit(diff, *make())
    assert evidence.verdict == "not run"
    assert "in a constructor" in evidence.reasons[0]
    assert devwidget.try_edit(diff, make).verdict == "fails"


def test_an_edit_of_a_line_that_has_run_is_answered() -> None:
    diff = "-@pytest.fixture(autouse=True)\n+@pytest.fixture(autouse=False)\n"
    assert "has run already" in devwidget.try_edit(diff, *make()).reasons[0]


def test_an_edit_that_the_step_does_not_reach_is_not_judged() -> None:
    diff = '-    return Shifted().to("cuda:0"), torch.ones(2, 4, device="cuda:0")\n+    return None\n'
    evidence = devwidget.try_edit(diff, *make())
    assert (evidence.verdict, "does not run line" in evidence.reasons[0]) == ("not run", True)


def test_an_edit_that_is_no_python_is_answered() -> None:
    evidence = devwidget.try_edit(f"-{SHIFT}+        shift = torch.linspace(0, 1, 4\n", *make())
    assert "is not valid Python" in evidence.reasons[0]


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("shift = 1", "no lines of a unified diff"),
        ("-        shift = torch.linspace(0, 1, 5)\n+        shift = 0\n", "is `shift = torch.linspace(0, 1, 4)`"),
        ("-    with devwidget.simulate(gpus=2):\n+    with devwidget.simulate(gpus=3):\n", "is `"),
    ],
)
def test_a_diff_that_does_not_apply_is_answered(diff: str, said: str) -> None:
    if "gpus" in diff:
        diff = diff.replace("    with", "     with")
    with pytest.raises(devwidget.DevwidgetError) as caught:
        devwidget.try_edit(diff, *make())
    assert said in str(caught.value)


def test_a_step_that_needs_another_edit_too_is_answered_with_what_is_left() -> None:
    class Two(Shifted):
        def forward(self, x):
            first = torch.arange(4)
            other = torch.ones(4)
            return self.layer(x) * first + other

    model, batch = Two().to("cuda:0"), torch.ones(2, 4, device="cuda:0")
    diff = "-            first = torch.arange(4)\n+            first = torch.arange(4, device=x.device)\n"
    evidence = devwidget.try_edit(diff, model, batch)
    assert evidence.verdict == "fails"
    assert "fixes a part" in evidence.reasons[1]


def test_every_result_is_short_for_a_language_model() -> None:
    model, batch = make()
    big = nn.Sequential(*(nn.Linear(4, 4) for _ in range(200)))
    trace = devwidget.trace(model, batch)
    with pytest.raises(RuntimeError) as caught:
        model(batch)
    records = [trace, trace.findings[0], devwidget.explain(caught.value), devwidget.snapshot(big), devwidget.memory_holders()]
    texts = [record._repr_llm_() for record in [*records, devwidget.try_edit(RIGHT, model, batch)]]
    assert max(map(len, texts)) <= 2000
    assert "+        shift = torch.linspace(0, 1, 4, device=x.device)" in texts[0]
    assert "shift" in texts[2]
    assert "more not shown" in texts[3]


def test_evidence_is_saved_and_read_again(tmp_path) -> None:
    evidence = devwidget.try_edit(RIGHT, *make())
    assert devwidget.load(evidence.save(tmp_path / "evidence.json")) == evidence


class Dropped(Shifted):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x))


def test_the_edited_step_drops_the_same_values() -> None:
    def make_seeded():
        torch.manual_seed(3)
        return Dropped().to("cuda:0"), torch.randn(2, 4, device="cuda:0")

    assert devwidget.try_edit(RIGHT, make_seeded).verdict == "works"


def test_ipython_shows_it_to_hosts_that_ask() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")

    class ModelFormatter(formatters.BaseFormatter):
        format_type = formatters.Unicode("text/llm+plain")
        print_method = formatters.ObjectName("_repr_llm_")

    evidence = devwidget.try_edit(RIGHT, *make())
    assert ModelFormatter()(evidence) == evidence._repr_llm_()
