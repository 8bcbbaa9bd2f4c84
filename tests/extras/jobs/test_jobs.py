"""Programs as PyTorch's tutorials have them run as jobs on virtual GPUs, and learn the same as with gloo on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

import devwidget
from devwidget.records.errors import SimulationError
from tests.extras.ranks.jobs import ROOT
from tests.older_torch import IS_OLDER

pytestmark = pytest.mark.process
PROGRAMS = Path(__file__).with_name("programs")
EXACT = ("collectives", "ddp", "ddp_two_gpus", "fsdp2", "notebook", "pipeline", "tensor_parallel", "unused")
ALL = (*EXACT, "sync_batchnorm", "refused")
CLOSE = 1e-5
LOSSES = [name for name in EXACT if name != "collectives"]
NOT_IN_GLOO = "Backend gloo does not support alltoall"


def run_jobs(folder, ranks, names):
    """Run programs in one process that forks all ranks."""
    subprocess.run(
        [sys.executable, "-m", "tests.extras.jobs.forked_jobs", str(ranks), str(2 * ranks), str(folder)]
        + [str(PROGRAMS / f"{name}.py") for name in names],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}, check=True,
    )  # fmt: skip
    return folder


def printed(folder, name, way):
    """What all ranks of a job printed, as far as gloo of older torch goes, and without what that says."""
    texts = [path.read_text() for path in sorted(folder.glob(f"{name}-{way}-*"))]
    if IS_OLDER:
        texts = [text.partition("Traceback")[0] if NOT_IN_GLOO in text else text for text in texts]
    return ["".join(line for line in text.splitlines(True) if not line.startswith("[Gloo]")) for text in texts]


def losses(folder, name, way):
    return [float(line.split()[1]) for text in printed(folder, name, way) for line in text.splitlines() if line[:5] == "loss "]


@pytest.fixture(scope="module", params=[pytest.param(ranks, marks=pytest.mark.slow) for ranks in (2, 4)], ids="{} ranks".format)
def jobs(request, tmp_path_factory, virtual_gpus):
    """The folder of what the ranks of all programs have printed."""
    return run_jobs(tmp_path_factory.mktemp("jobs"), request.param, ALL if request.param == 2 else ALL[:-1])


two_ranks = pytest.mark.parametrize("jobs", [pytest.param(2, marks=pytest.mark.slow)], indirect=True, ids="{} ranks".format)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_the_cpu_to_the_last_bit(jobs, name):
    expected = losses(jobs, name, "cpu")
    assert len(expected) >= 2, printed(jobs, name, "cpu")
    assert losses(jobs, name, "cuda") == expected, printed(jobs, name, "cuda")


def test_every_collective_gives_what_it_gives_on_the_cpu(jobs):
    on_cpu, on_gpus = printed(jobs, "collectives", "cpu"), printed(jobs, "collectives", "cuda")
    assert len(on_cpu[1].splitlines()) == 33 or IS_OLDER
    assert on_cpu[1].splitlines()
    assert on_gpus == on_cpu


def test_ranks_share_the_statistics_of_a_batch_norm(jobs):
    expected = losses(jobs, "sync_batchnorm", "cpu")
    assert len(expected) == 7
    assert losses(jobs, "sync_batchnorm", "cuda") == pytest.approx(expected, rel=CLOSE)


@two_ranks
def test_ddp_runs_over_nccl_by_its_name(jobs):
    assert printed(jobs, "ddp", "cuda")[0].count("backend nccl") == 2
    assert printed(jobs, "ddp", "cpu")[0].count("backend gloo") == 2


@two_ranks
def test_gradients_of_a_module_on_two_gpus_are_on_both(jobs):
    assert "devices cuda:0 cuda:1 cuda:0\n" in printed(jobs, "ddp_two_gpus", "cuda")[0]


@pytest.mark.slow
@two_ranks
def test_a_notebook_launches_ranks_that_have_a_gpu_each(jobs):
    assert "devices cuda:0 2 DistributedType.MULTI_GPU\n" in printed(jobs, "notebook", "cuda")[0]


DUPLICATE = (
    "DistBackendError NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage (run with "
    "NCCL_DEBUG=WARN for details), NCCL version 2.29.7 | ncclInvalidUsage: This usually reflects invalid usage of NCCL "
    "library. | Last error: | Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 0"
)


@two_ranks
def test_what_nccl_does_not_take_is_refused_in_its_words(jobs):
    assert printed(jobs, "refused", "cuda")[1].splitlines() == [
        "RuntimeError No backend type associated with device type cpu",
        "ValueError Tensors must be CUDA and dense",
        "ValueError Expected list of tensors on the same device",
        "ValueError Tensors must be contiguous",
        "TypeError Input tensor data type is not supported for NCCL process group: Short",
        "nccl True True",
        "[4.0, 4.0, 4.0]",
        DUPLICATE,
    ]


def test_without_values_there_is_nothing_to_send():
    with devwidget.simulate(2, compute=False), pytest.raises(SimulationError, match="without values cannot send"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)


def run_program(*command, gpus=2):
    """What a program prints on virtual GPUs, or on none."""
    launched = ["-m", "devwidget", "run", "--gpus", str(gpus)] if gpus else []
    ended = subprocess.run(
        [sys.executable, *launched, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_gpus")
def test_ranks_that_torchrun_begins_have_a_gpu_each():
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert run_program(*launcher, str(PROGRAMS / "ddp.py")).count("backend nccl") == 2


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_gpus")
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize(
    ("name", "launcher", "on_cpu"),
    [
        ("glue", ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"], ["--use_cpu", "True"]),
        ("launched", ["-m", "accelerate.commands.launch", "--num_processes"], ["--cpu"]),
    ],
)
def test_scripts_of_trainers_learn_the_same_as_with_gloo(name, launcher, on_cpu, ranks):
    pytest.importorskip("transformers" if name == "glue" else "accelerate")
    program = str(PROGRAMS / f"{name}.py")
    plain = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    expected = run_program(*plain, str(ranks), program, *on_cpu, gpus=0)
    found = run_program(*launcher, str(ranks), program, gpus=ranks)
    learned, told = ([line for line in text.splitlines() if line[:5] == "loss "] for text in (expected, found))
    assert len(learned) >= 10
    assert told == learned
    assert f"device cuda:0 {ranks} " in found
