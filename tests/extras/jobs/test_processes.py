"""Processes that begin inside a simulation have its GPUs, however they begin."""

import multiprocessing
import os
import subprocess
import sys

import pytest
import torch
import torch.multiprocessing

import devwidget
from devwidget.extras.jobs import children
from devwidget.gpus import simulate
from devwidget.records.device import SIMULATE_VARIABLE as VARIABLE

HERE = torch.cuda.device_count()
"""In a process that imports this module anew: what the program sees while it is imported."""
TELL = "import torch; print(torch.cuda.device_count(), torch.ones(1, device='cuda:2').device)"


def tell(answers):
    """What the GPUs of this process are."""
    with devwidget.simulate(3, memory="1GiB"):  # as programs were told to write; they are the same
        memory = torch.cuda.get_device_properties(2).total_memory
    answers.send((torch.cuda.device_count(), HERE, memory, os.environ[VARIABLE]))


def set_device(rank, file):
    """The program of a rank."""
    torch.cuda.set_device(rank)
    torch.save(torch.ones(1, device="cuda"), f"{file}{rank}")


@pytest.fixture
def gpus():
    with simulate(gpus=3, memory="1GiB"):
        yield


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("way", ["spawn", "forkserver"])
@pytest.mark.process
def test_a_new_process_inherits_virtual_gpus_before_it_imports_the_program(way):
    context = multiprocessing.get_context(way)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=tell, args=(writer,))
    process.start()
    assert reader.recv() == (3, 3, 1 << 30, "gpus=3,memory=1GiB")
    process.join()


@pytest.mark.slow
@pytest.mark.usefixtures("gpus")
@pytest.mark.process
def test_ranks_that_torch_spawns_have_a_gpu_each(tmp_path):
    torch.multiprocessing.spawn(set_device, (f"{tmp_path}/",), nprocs=2)
    assert [torch.load(tmp_path / rank).device.index for rank in "01"] == [0, 1]


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("name", [pytest.param(sys.executable, marks=pytest.mark.slow), "python"])
@pytest.mark.process
def test_a_command_of_this_python_inherits_them_and_is_shown_as_it_was_given(name, monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    told = subprocess.run([name, "-c", TELL], capture_output=True, text=True, check=True)
    assert told.stdout == "3 cuda:2\n"
    assert told.args == [name, "-c", TELL]


@pytest.mark.usefixtures("gpus")
@pytest.mark.process
def test_a_command_is_told_its_own_arguments_path_and_main(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys, __main__; print(sys.argv, sys.path[0], __main__.__file__, __name__, 'torch' in sys.modules)")
    command = [sys.executable, "train.py", "-c", "x"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.stderr == ""
    assert told.stdout == f"['train.py', '-c', 'x'] {tmp_path} {script} __main__ False\n"


@pytest.mark.usefixtures("gpus")
@pytest.mark.process
def test_the_traceback_of_a_command_has_no_frames_of_ours():
    done = subprocess.run([sys.executable, "-c", "1/0"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nZeroDivisionError: division by zero\n'
    )


@pytest.mark.usefixtures("gpus")
@pytest.mark.process
def test_a_clean_environment_hands_nothing_on():
    told = subprocess.run(
        [sys.executable, "-c", "import sys; print('devwidget' in sys.modules)"],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == "False\n"


def test_afterwards_nothing_is_handed_on():
    with simulate(2):
        assert os.environ[VARIABLE] == "gpus=2,memory=16GiB"
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        (["train.py", "-m"], [], ["train.py", "-m"]),
        (["-u", "-Wignore", "-X", "dev", "train.py"], ["-u", "-W", "ignore", "-X", "dev"], ["train.py"]),
        (["-um", "package.train", "1"], ["-u"], ["-m", "package.train", "1"]),
        (["-cpass", "1"], [], ["-c", "pass", "1"]),
    ],
)
def test_options_of_python_are_told_from_the_program(words, options, program):
    assert children.split_command(words) == (options, program)


@pytest.mark.parametrize("words", [[], ["-"], ["-m"], ["--version"]])
def test_a_python_that_runs_no_program_is_left_alone(words):
    assert children.split_command(words) is None


@pytest.mark.parametrize("command", ["no such program", [], ["/bin/sh", "-c", "true"]])
def test_other_commands_run_as_they_are(command):
    assert children.change_command(command) is None


@pytest.mark.parametrize("head", ["#!{}\n", "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\n"], ids=["plain", "by the shell"])
def test_a_script_of_this_python_is_run_by_it(tmp_path, head):
    script = tmp_path / "torchrun"
    script.write_text(head.format(sys.executable), encoding="utf-8")
    script.chmod(0o755)
    assert children.change_command([str(script), "x.py"]) == [sys.executable, "-c", children.BEGIN, str(script), "x.py"]
