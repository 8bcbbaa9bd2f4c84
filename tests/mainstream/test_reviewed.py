"""Small programs of which something false, or nothing, was once said: what is said of each now, and how often it waits."""

from __future__ import annotations

import functools
import pathlib

import pytest

from tests.mainstream.test_mainstream import marked, run

HERE = pathlib.Path(__file__).parent / "reviewed"
MOVED, HINT = ("needless-hop", "info"), ("host-sync", "info")
WARNING, ERROR = ("host-sync", "warning"), ("invalid-device", "error")
SAID = {
    "a_line_twice": ([], 0),
    "accuracy_printed_at_the_end": ([], 1),
    "cpu_mask_on_gpu": ([HINT], 60),
    "depends_on_workers": ([HINT], 2),
    "device_out_of_range": ([ERROR], 0),
    "device_out_of_range_by_cuda": ([ERROR], 0),
    "dtensor_random": ([], 5057),  # torch compares the states of generators byte by byte: `all(mine == others)`
    "functional_data_parallel": ([], 0),
    "gloo": ([], 1),
    "gpus_never_used": ([], 0),
    "index_given_as_a_number": ([ERROR], 0),
    "label_read_by_a_function": ([], 1),
    "meant_for_the_host": ([], 0),
    "model_forward_called": ([WARNING], 5),
    "nonzero_waits": ([HINT, HINT, HINT], 12),
    "optimizer_before_frozen_part": ([], 0),
    "prompt_on_the_host": ([], 34),
    "result_read_after_inference": ([], 1),
    "slice_by_gpu_scalar": ([WARNING, HINT], 16),
    "style_transfer": ([], 0),
    "two_of_a_class": ([WARNING], 2),
    "waits_by_phase": ([HINT], 24),
    "waits_of_a_training_loop": ([WARNING, HINT], 325),
    "waits_of_generation": ([HINT], 100),
    "waits_of_the_loop": ([HINT, HINT], 40),
}
"""Program -> kinds with their severities, worst first, and how many waits the trace counts."""
QUICK = {"a_line_twice", "meant_for_the_host", "device_out_of_range", "gpus_never_used",
         "two_of_a_class"}  # fmt: skip


@functools.cache
def traced(name):
    return run(HERE / f"{name}.py")


def test_every_program_has_its_expectation():
    assert {path.stem for path in HERE.glob("*.py")} == SAID.keys()


@pytest.mark.parametrize("name", marked(SAID, QUICK.__contains__))
def test_what_is_said_is_what_there_is(name):
    trace = traced(name)
    assert ([(each.kind, each.severity) for each in trace.findings], sum(wait.count for wait in trace.waits)) == SAID[name]
    assert bool(trace.error) == (ERROR in SAID[name][0])


def test_a_line_that_moves_at_each_step_is_one_row():
    rows = str(traced("a_line_twice")).partition("transfers, by line")[2].partition("memory at its peak")[0]
    assert rows.count("x = torch.rand(8, 4)") == 1
    assert "4x  512 B" in rows


def test_two_of_a_class_are_not_told_as_the_same():
    assert "the same in `Net`" not in str(traced("two_of_a_class"))


def test_gpus_that_did_nothing_are_the_first_thing_said():
    assert "nothing ran on the 2 virtual GPUs" in str(traced("gpus_never_used")).splitlines()[0]
