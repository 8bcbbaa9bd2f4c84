"""A click on Trace batch finds what a call of `devwidget.trace` finds, though no line of the user stands above it."""

import importlib.util
import pathlib
import re
import threading
import warnings
from collections import Counter

import pytest
import torch

import devwidget
from devwidget.records.schema.record import dumps

CORPUS = pathlib.Path(__file__).parent / "corpus"
CASES = sorted(path for folder in (CORPUS, CORPUS / "more", CORPUS / "clicked") for path in folder.glob("case_*.py"))
SAMPLE = {"case_labels_on_cpu_cross_entropy", "case_dataparallel_ids_2_3_model_on_0", "case_multi_small_gpt_four_bugs"}
OURS = re.compile(r"run_trace|devwidget\.(trace|show)\(")


def built(path):
    """What a case builds; None for one that fails before there is a model."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    case = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(case)
    try:
        parts = case.build()
    except Exception:  # its own failure
        return None
    batch = devwidget.Inputs(*parts.get("args", ()), **parts.get("kwargs", {}))
    return parts["model"], batch, {key: parts[key] for key in ("loss_fn", "target", "optimizer") if parts.get(key) is not None}


def on_gpus(path, run):
    """What `run` makes of a case, from the same random state each time; None for one without a model."""
    torch.manual_seed(0)
    gpus = int(re.search(r"^GPUS = (\d+)", path.read_text(encoding="utf-8"), re.M)[1])
    with devwidget.simulate(gpus=gpus), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = built(path)
        return None if parts is None else run(*parts)


def called(model, batch, step):
    return devwidget.trace(model, batch, **step)


def clicked(model, batch, step):
    """The panel's trace, asked for from a thread: below a click, too, stand only frames of libraries."""
    panel = devwidget.show(model, batch, **step)
    thread = threading.Thread(target=panel.run_trace)
    thread.start()
    thread.join()
    panel.close()
    return panel.trace


def edits_of(finding):
    """The edits of its first fix."""
    return tuple((edit.file, edit.first, edit.text) for fix in finding.fixes[:1] for edit in fix.edits)


def said(trace):
    """What the findings of a trace say, without the lines that a call alone has: of this file."""

    def place(site):
        return None if site is None or site.file == __file__ else (site.file, site.line)

    return Counter((each.kind, each.severity, each.module, place(each.birth), edits_of(each)) for each in trace.findings)


def marked(path):
    return pytest.param(path, marks=[] if path.stem in SAMPLE else pytest.mark.fuzz, id=path.stem)


@pytest.mark.parametrize("path", list(map(marked, CASES)))
def test_a_click_is_a_call(path):
    call, click = on_gpus(path, called), on_gpus(path, clicked)
    if call is None:
        assert click is None
        return
    assert said(click) == said(call)
    assert (bool(click.error), click.checked, click.not_checked) == (bool(call.error), call.checked, call.not_checked)
    assert not [text for text in click.not_checked if text.startswith("recorder")]
    for trace in (call, click):
        assert not OURS.search(dumps(trace))


class Picks(torch.nn.Module):
    """Computes twice with one argument, once by way of a mask that has its device."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x, tags):
        mask = torch.ones_like(tags, dtype=torch.bool)
        picked = self.layer(x).gather(1, tags.unsqueeze(1)).squeeze(1)
        return picked * mask


def test_what_comes_from_the_batch_is_one_cause():
    def traces(run):
        with devwidget.simulate(gpus=1):
            batch = torch.ones(2, 4, device="cuda"), torch.tensor([0, 2])
            return run(Picks().cuda(), batch, {})

    told = said(traces(clicked))
    assert len(told) == 1
    assert told == said(traces(called))
