"""Placement cases: what is wrong is found, what is clean stays silent, and virtual GPUs fail as CUDA does."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

from tests.older_torch import VERSION

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("virtual_gpus")]
"""The first case of a set waits for all of them, each a process."""
CORPUS = pathlib.Path(__file__).parent / "corpus"
FOLDERS = (CORPUS, CORPUS / "more")
FURTHER = (CORPUS / "second", CORPUS / "third")
CASES = sorted(path.stem for folder in FOLDERS for path in folder.glob("case_*.py"))


OTHERWISE = {
    "case_detection_mse_of_numpy_boxes": (2, 12),
    "case_f16_dqn_rewards_in_double": (2, 12),
    "case_sparse_adjacency_attribute": (2, 11),
}
"""Cases that virtual GPUs take otherwise than real ones before this version of torch, as docs/virtual-gpus.md says."""


def is_otherwise(case):
    return OTHERWISE.get(case, (0, 0)) > VERSION


def scores(folders, tmp_path_factory, *options):
    """Problems of each case; every case runs in a process of its own, as in a user's kernel."""
    target = tmp_path_factory.mktemp("scores") / "scores.json"
    command = [sys.executable, str(CORPUS / "score.py"), *map(str, folders), "--json", str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CORPUS.parents[1], check=False)
    assert target.exists(), done.stderr[-2000:]
    return json.loads(target.read_text())


@pytest.fixture(scope="module")
def diagnosis(tmp_path_factory):
    return scores(FOLDERS, tmp_path_factory)


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    return scores(FOLDERS, tmp_path_factory, "--simulator")


@pytest.mark.parametrize("case", CASES)
def test_the_diagnosis_is_right(diagnosis, case):
    assert diagnosis[case]["problems"] == []


@pytest.mark.parametrize("case", CASES)
def test_virtual_gpus_fail_as_cuda_does(simulation, case):
    if is_otherwise(case):
        pytest.skip(f"virtual GPUs of torch {torch.__version__} take it otherwise")
    assert simulation[case]["problems"] == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--simulator",)], ids=["diagnosis", "simulator"])
@pytest.mark.parametrize("folder", FURTHER, ids=lambda folder: folder.name)
def test_two_further_sets_are_right(tmp_path_factory, folder, options):
    found = scores([folder], tmp_path_factory, *options)
    assert {case: score["problems"] for case, score in found.items() if score["problems"] and not is_otherwise(case)} == {}


@pytest.mark.slow
def test_cases_as_cells_of_a_kernel_are_found_and_their_verified_fixes_hold(tmp_path):
    target = tmp_path / "scores.json"
    sample = ["causal_mask", "rnn_hidden", "conv_list", "multi_detector", "multi_gan"]
    command = [sys.executable, str(CORPUS / "kernel.py"), "--only", *sample, "--json", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CORPUS.parents[1], check=False)
    assert target.exists(), done.stderr[-2000:]
    found = json.loads(target.read_text())
    assert [case for case, score in found.items() if score["diagnosis"] or score["fixes"] or score["broken"]] == []
    assert [score["verified"] for score in found.values()] == [1, 1, 3, 3, 1]


def sure_edits(tmp_path, *options):
    """(how many edits are called sure, a problem for each that does not cure its program)."""
    target = tmp_path / "sure.json"
    command = [sys.executable, str(CORPUS / "sure.py"), "--json", str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CORPUS.parents[1], check=False)
    assert target.exists(), done.stderr[-2000:]
    found = json.loads(target.read_text())
    return found["sure"], found["problems"]


def test_of_the_edits_called_sure_in_a_few_programs_none_fails(tmp_path):
    count, problems = sure_edits(tmp_path, "--only", "rnn_hidden", "l1_target", "causal_mask")
    assert problems == []
    assert count


@pytest.mark.fuzz
def test_of_all_edits_called_sure_none_fails(tmp_path):
    count, problems = sure_edits(tmp_path)
    assert problems == []
    assert count > 10
