"""What records print, whole: the files in golden/, written anew by `pytest tests/report --update-golden`."""

import devwidget.report  # noqa: F401  registers the words
from devwidget.records.explanation import Explanation, Value
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.trace import Trace
from tests.views.builders import CPU, GPU0, GPU1, data_parallel, one_step, site, split_model, unregistered, wrong_device


def test_a_finding(golden):
    golden("finding.txt", wrong_device())


def test_a_finding_with_its_birth_and_a_verified_repair(golden):
    golden("finding-birth.txt", unregistered())


def test_a_snapshot_of_a_split_model(golden):
    golden("snapshot.txt", split_model())


def test_a_snapshot_of_a_model_without_tensors(golden):
    golden("snapshot-empty.txt", Snapshot((ModuleFacts("", "Identity", -1, 0),)))


def test_a_trace_with_findings_and_hops(golden):
    golden("trace.txt", one_step())


def test_a_trace_of_data_parallel(golden):
    golden("trace-data-parallel.txt", data_parallel(3))


def test_a_trace_that_found_nothing_and_one_that_ended_early(golden):
    golden("trace-clean.txt", Trace(checked=("wrong-device",)))
    golden("trace-ended.txt", Trace(error="RuntimeError: boom", not_checked=("ping-pong: no forward pass in this trace",)))


def test_an_explanation(golden):
    values = (Value("hidden", (8, 512), "float32", GPU0), Value("weight", (1000, 512), "float32", GPU1))
    golden("explanation.txt", Explanation(
        error="RuntimeError: Expected all tensors to be on the same device",
        verdict="`addmm` got tensors on cuda:0 and cuda:1",
        findings=(wrong_device(),),
        site=site(41, "return self.head(hidden)"),
        module="decoder.head",
        values=values,
        notes=("where `hidden` was moved cannot be seen after the fact",),
    ))  # fmt: skip


def test_an_explanation_that_finds_nothing(golden):
    value = Value("ids", (8,), "int64", CPU)
    golden("explanation-nothing.txt", Explanation("IndexError: index 9 is out of range", "not about devices or dtypes",
                                                  site=site(12, "x = table[ids]"), values=(value,)))  # fmt: skip
