"""Placement cases: what is wrong is found, what is clean stays silent, and virtual GPUs fail as CUDA does."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

from tests.corpus import score, sure
from tests.older_torch import VERSION
from tests.sampling import as_slow

pytestmark = pytest.mark.usefixtures("virtual_gpus")
CORPUS = pathlib.Path(score.__file__).parent
OTHERWISE = {
    "case_detection_mse_of_numpy_boxes": (2, 12),
    "case_f16_dqn_rewards_in_double": (2, 12),
    "case_sparse_adjacency_attribute": (2, 11),
}
"""Cases that virtual GPUs take otherwise than real ones before this version of torch, as docs/explanation/limits.md says."""


def is_otherwise(case):
    return OTHERWISE.get(case, (0, 0)) > VERSION


def cases_of(*folders):
    return [path for folder in folders for path in sorted((CORPUS / folder).glob("case_*.py"))]


each_case = pytest.mark.parametrize(
    "path", [*cases_of("", "more"), *map(as_slow, cases_of("second", "third"))], ids=lambda path: path.stem
)


@each_case
def test_the_diagnosis_is_right(path):
    problems, _, _ = score.run_one(path, simulator=False, virtual=True)
    assert problems == []


@each_case
def test_virtual_gpus_fail_as_cuda_does(path):
    if is_otherwise(path.stem):
        pytest.skip(f"virtual GPUs of torch {torch.__version__} take it otherwise")
    problems, _, _ = score.run_one(path, simulator=True, virtual=True)
    assert problems == []


def output_of(script, folder, *options):
    """What a script of the corpus writes as JSON."""
    target = folder / "found.json"
    command = [sys.executable, str(CORPUS / script), "--json", str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CORPUS.parents[1], check=False)
    assert target.exists(), done.stderr[-2000:]
    return json.loads(target.read_text())


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(900)
def test_cases_as_cells_of_a_kernel_are_found_and_their_verified_fixes_hold(tmp_path):
    sample = ["causal_mask", "rnn_hidden", "conv_list", "multi_detector", "multi_gan"]
    found = output_of("kernel.py", tmp_path, "--only", *sample)
    assert [case for case, scored in found.items() if scored["diagnosis"] or scored["fixes"] or scored["broken"]] == []
    assert [scored["verified"] for scored in found.values()] == [1, 1, 2, 3, 1]  # an edit of a class is not run in the kernel


@pytest.mark.parametrize("case", ["rnn_hidden_zeros_in_forward", "l1_target_left_on_cpu", "causal_mask_plain_attribute"])
def test_an_edit_called_sure_cures_its_program(case):
    count, problems = sure.scored(CORPUS / f"case_{case}.py")
    assert problems == []
    assert count


@pytest.mark.fuzz
@pytest.mark.process
@pytest.mark.timeout(900)
def test_of_all_edits_called_sure_none_fails(tmp_path):
    found = output_of("sure.py", tmp_path)
    assert found["problems"] == []
    assert found["sure"] > 10
