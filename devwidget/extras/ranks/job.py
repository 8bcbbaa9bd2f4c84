"""The job of this process: its rank, and the private folder with a socket and a file for each rank."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from devwidget.capture.process_rank import rank_of_environment, rank_of_torch
from devwidget.extras.ranks.records.checks import MOST_RANKS
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

HANDLER = "devwidget"
"""The name of the handler on the server of a rank."""
# Bytes of the path of a unix socket; Linux has room for 108 with the zero at the end.
LONGEST_PATH = 107
FOLDER_VARIABLE = "DEVWIDGET_RANKS"
"""Environment variable that names the folder for every process of a job."""

_JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_PORT")
_FILE = re.compile(r"rank-(\d{1,7})\.(json|sock)")


def job_folder(environ: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return the folder of the job: `$DEVWIDGET_RANKS`, else one named after the job."""
    if environ.get(FOLDER_VARIABLE):
        return pathlib.Path(environ[FOLDER_VARIABLE])
    job = "-".join(re.sub(r"[^\w.-]", "_", environ[name]) for name in _JOB_VARIABLES if environ.get(name))
    return owner_folder() / (job or "job")


def owner_folder() -> pathlib.Path:
    """Return the folder of all jobs of this user on this machine."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isdir(runtime):
        return pathlib.Path(runtime) / "devwidget"
    return pathlib.Path(tempfile.gettempdir()) / f"devwidget-{os.getuid()}"


def make_private(folder: pathlib.Path, *, for_sockets: bool = True) -> pathlib.Path:
    """Create a folder that only its user can access.

    Raises:
        DevwidgetError: If others have access to it, or its name is too long for a socket.
    """
    folder = folder.absolute()
    longest = len(os.fsencode(socket_of(folder, 10**6)))
    if for_sockets and longest > LONGEST_PATH:
        facts = {"most": LONGEST_PATH, "size": longest}
        why = Message("the path of a unix socket has at most {most} bytes; this one would have {size}", **facts)
        raise DevwidgetError(Message("the name of the folder {folder} is too long", folder=folder), why=why, instead=_INSTEAD)
    if folder.parent == owner_folder().absolute():
        _make_folder(folder.parent)
    _make_folder(folder)
    return folder


def _make_folder(folder: pathlib.Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise DevwidgetError(
            Message("cannot create folder {folder}: {error}", folder=folder, error=error.strerror), instead=_INSTEAD
        ) from None
    refuse_shared(folder)


_INSTEAD = Message('pass a folder of your own, the same for all ranks: devwidget.serve(folder="...")')


def refuse_shared(folder: pathlib.Path) -> None:
    """Raise `DevwidgetError` if a path is not a private folder: access to it allows queries to the ranks."""
    try:
        found = folder.lstat()
    except OSError as error:
        raise DevwidgetError(
            Message("there is no folder {folder}: {error}", folder=folder, error=error.strerror), instead=_INSTEAD
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise DevwidgetError(Message("{folder} is not a folder", folder=folder), instead=_INSTEAD)
    if found.st_uid != os.getuid():
        raise DevwidgetError(Message("the folder {folder} belongs to another user", folder=folder), instead=_INSTEAD)
    if stat.S_IMODE(found.st_mode) & 0o077:
        why = Message("every user with access to the folder can query the tensors and stacks of the ranks")
        raise DevwidgetError(
            Message("other users have access to the folder {folder}", folder=folder), why=why, instead=f"chmod 700 {folder}"
        )


def socket_of(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """Return the path of the socket of one rank."""
    return folder / f"rank-{rank}.sock"


def file_of(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """Return the file of the reports of one rank."""
    return folder / f"rank-{rank}.json"


def trace_of(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """Return the file of the trace of one rank."""
    return folder / f"rank-{rank}.trace.json"


def write_whole(path: pathlib.Path, text: str) -> None:
    """Write a file atomically: a reader finds the old or the new content."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def ranks_in(folder: pathlib.Path) -> Iterator[int]:
    """Yield the numbers of all ranks with files in a folder."""
    found = {int(match[1]) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name))}
    yield from sorted(number for number in found if number < MOST_RANKS)


# What is the same for all ranks of a job, and mostly another for the next.
_JOBS = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    *("MASTER_ADDR", "MASTER_PORT"),
)


class Identity(NamedTuple):
    """One process of a job, in the order of a RankReport."""

    rank: int
    world_size: int
    host: str
    pid: int


def find_identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """Return the identity of this process.

    Raises:
        DevwidgetError: If neither torch nor the environment knows its rank.
    """
    found = rank_of_torch() or rank_of_environment(environ)
    if found is None:
        why = Message("`torch.distributed` is not initialized, and RANK and WORLD_SIZE are not set in the environment")
        raise DevwidgetError(
            Message("this process is not a rank"),
            why=why,
            instead=Message("call it after torch.distributed.init_process_group"),
        )
    return Identity(*found, socket.gethostname(), os.getpid())


def job_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the launcher's name of the job; "" without one."""
    return " ".join(environ[name] for name in _JOBS if environ.get(name))


def find_machine() -> str:
    """Return what distinguishes this machine and its process numbers from another of the same name; "" without `/proc`.

    Containers of one image often share a name, and their processes the same numbers.
    """
    try:
        booted = (_PROCESSES / "sys/kernel/random/boot_id").read_text().strip()
        return f"{booted} {os.readlink(_PROCESSES / 'self/ns/pid')}"
    except OSError:
        return ""


def read_process(pid: int) -> tuple[str, int] | None:
    """Return the state letter of a process on Linux, and its start in ticks; None if it does not exist."""
    try:
        fields = (_PROCESSES / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        # It ended between two steps.
        return None


_PROCESSES = pathlib.Path("/proc")
_STORE_KEY = "devwidget/run"


def agree_on_run() -> str:
    """Return an id that all ranks of this run agree on through torch's store; "" without a store.

    The first rank writes it, the others read it: no rank waits for another.
    """
    from devwidget.capture import torch_internals  # late: a login node may have no torch

    if rank_of_torch() is None or torch_internals.default_store is None:
        return ""
    try:
        agreed: bytes = torch_internals.default_store().compare_set(_STORE_KEY, "", uuid.uuid4().hex)
    except (AttributeError, RuntimeError, ValueError):
        # A store that cannot, or one that has gone with its rank.
        return ""
    return agreed.decode(errors="replace")[:64]
