"""The folder of a job: one socket and one file for each rank, which nobody but their owner can reach."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping

from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.consistency import MOST_RANKS
from devwidget.records.schema.message import Message

HANDLER = "devwidget"
"""The name under which the server of a rank knows us."""
LONGEST_PATH = 107
"""Bytes of the path of a unix socket; Linux has room for 108 with the zero at the end."""
FOLDER_VARIABLE = "DEVWIDGET_RANKS"
"""The environment variable that names the folder for every process of a job."""

_JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_PORT")
_FILE = re.compile(r"rank-(\d{1,7})\.(json|sock)")


def job_folder(environ: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Where the ranks of the job meet that the environment speaks of: `$DEVWIDGET_RANKS`, else one named after the job."""
    if environ.get(FOLDER_VARIABLE):
        return pathlib.Path(environ[FOLDER_VARIABLE])
    job = "-".join(re.sub(r"[^\w.-]", "_", environ[name]) for name in _JOB_VARIABLES if environ.get(name))
    return owner_folder() / (job or "job")


def owner_folder() -> pathlib.Path:
    """The folder of all jobs of this user on this machine."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isdir(runtime):
        return pathlib.Path(runtime) / "devwidget"
    return pathlib.Path(tempfile.gettempdir()) / f"devwidget-{os.getuid()}"


def made_private(folder: pathlib.Path, *, for_sockets: bool = True) -> pathlib.Path:
    """The folder, made if it is not there, with those above it that are ours alone to make.

    Raises:
        DevwidgetError: if somebody else can enter it, or its name is too long for a socket.
    """
    folder = folder.absolute()
    if for_sockets:
        _refuse_long(folder)
    if folder.parent == owner_folder().absolute():
        _make(folder.parent)
    _make(folder)
    return folder


def _make(folder: pathlib.Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise DevwidgetError(
            Message("the folder {folder} cannot be made: {error}", folder=folder, error=error.strerror), instead=_INSTEAD
        ) from None
    refuse_shared(folder)


_INSTEAD = Message('devwidget.serve(folder="...") with a folder of your own, the same for all ranks')


def refuse_shared(folder: pathlib.Path) -> None:
    """Whoever can enter the folder of a job can ask its ranks.

    Raises:
        DevwidgetError: if it is no folder, a link, another user's, or open to others.
    """
    try:
        found = folder.lstat()
    except OSError as error:
        raise DevwidgetError(
            Message("there is no folder {folder}: {error}", folder=folder, error=error.strerror), instead=_INSTEAD
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise DevwidgetError(Message("{folder} is no folder", folder=folder), instead=_INSTEAD)
    if found.st_uid != os.getuid():
        raise DevwidgetError(Message("the folder {folder} belongs to another user", folder=folder), instead=_INSTEAD)
    if stat.S_IMODE(found.st_mode) & 0o077:
        why = Message("whoever enters the folder can ask the ranks where their tensors are, and which lines run")
        raise DevwidgetError(
            Message("other users may enter the folder {folder}", folder=folder), why=why, instead=f"chmod 700 {folder}"
        )


def _refuse_long(folder: pathlib.Path) -> None:
    longest = len(os.fsencode(socket_of(folder, 10**6)))
    if longest > LONGEST_PATH:
        facts = {"most": LONGEST_PATH, "size": longest}
        why = Message("the path of a unix socket has {most} bytes at most, and this one would have {size}", **facts)
        raise DevwidgetError(Message("the name of the folder {folder} is too long", folder=folder), why=why, instead=_INSTEAD)


def socket_of(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """Where one rank listens."""
    return folder / f"rank-{rank}.sock"


def file_of(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """What one rank has written."""
    return folder / f"rank-{rank}.json"


def trace_of(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """What one rank has recorded."""
    return folder / f"rank-{rank}.trace.json"


def write_whole(path: pathlib.Path, text: str) -> None:
    """A file that a reader finds either as it was or as it is now."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def ranks_in(folder: pathlib.Path) -> Iterator[int]:
    """The numbers of all ranks that have left something in a folder; no job has others."""
    found = {int(match[1]) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name))}
    yield from sorted(number for number in found if number < MOST_RANKS)
