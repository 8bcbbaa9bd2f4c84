"""Programs in forks of one process that has imported torch: each runs and ends as a process of its own, seconds earlier."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import runpy
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


class Programs:
    """The process that has imported torch; it ends with the one that has started it."""

    def __init__(self) -> None:
        settings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.forked_programs"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, folder: pathlib.Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """What `python COMMAND` does in a folder."""
        files = [folder / "stdout.txt", folder / "stderr.txt"]
        for each in files:
            each.write_bytes(b"")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([command, str(folder), list(map(str, files)), environ]), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(command, status, *(each.read_text(encoding="utf-8") for each in files))


@functools.cache
def programs() -> Programs:
    """One such process for all tests of this one."""
    return Programs()


def become(command: list[str], folder: str, files: list[str], environ: dict[str, str]) -> None:
    """Run a program in this process, as Python would."""
    for descriptor, path in enumerate((os.devnull, *files)):
        os.dup2(os.open(path, os.O_RDWR), descriptor)
    os.chdir(folder)
    os.environ.update(environ)
    sys.path[0] = folder
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def main() -> None:
    import torch.multiprocessing
    import torch.utils.data  # noqa: F401

    import devwidget.api
    import devwidget.cli.main

    devwidget.extras.find_home("names", "serve")

    for line in sys.stdin:
        if (child := os.fork()) == 0:
            become(*json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
