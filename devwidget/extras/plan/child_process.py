"""Asks other processes: a child that sees no GPU, where tensors go without values, or a copy of this one."""

from __future__ import annotations

import functools
import io
import linecache
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from torch.nn.utils.parametrize import is_parametrized

from devwidget import gpus
from devwidget.capture.interrupts import no_gradients
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.restore.settings import set_switches, switches_now
from devwidget.capture.tensors import device_of, is_parameter
from devwidget.capture.torch_internals import conjugate_view, negative_view
from devwidget.extras.meta.known_values import most_bytes
from devwidget.gpus import torch_internals
from devwidget.gpus.torch_internals import DisableTorchFunction
from devwidget.records.device import CUDA, SIMULATE_VARIABLE
from devwidget.records.errors import DevwidgetError, error_text, require_package
from devwidget.records.schema.message import Message

require_package("cloudpickle", Message("a plan"))
import cloudpickle  # noqa: E402

Answer = TypeVar("Answer")
QUESTION, ANSWER = "question", "answer"
PROGRAM = (
    "import sys; sys.path[:0] = sys.argv[2:]; "
    "from devwidget.extras.plan.child_process import answer_in_folder; answer_in_folder(sys.argv[1])"
)
LAST_LINES = 3


def ask_child(question: Callable[..., Answer], *about: Any) -> Answer:
    """Call a function here, or in a child process where virtual GPUs are running or real ones were used.

    Args:
        question: a function of this package.
        about: its arguments; a child gets them without the values of large tensors.

    Raises:
        DevwidgetError: if it cannot be sent there, or the child does not answer.
    """
    if gpus.active() is None and not torch_internals.is_started():
        return question(*about)
    letter = write_question(question, *about)
    with tempfile.TemporaryDirectory(prefix="devwidget-") as folder:
        Path(folder, QUESTION).write_bytes(letter)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder, *sys.path],
            # An empty variable: it is to have no virtual GPUs but those that it begins itself.
            env={**os.environ, CUDA.visible_variable: "", SIMULATE_VARIABLE: ""},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace", check=False,
        )  # fmt: skip
        print(done.stdout, end="")  # what the model prints while it runs
        if not Path(folder, ANSWER).exists():
            last = " ".join(done.stderr.splitlines()[-LAST_LINES:])
            raise DevwidgetError(
                Message("the planning process ended with {returncode}: {last}", returncode=done.returncode, last=last)
            )
        found: Answer = _read_answer(Path(folder, ANSWER).read_bytes())
        return found


def ask_copy(question: Callable[[], Answer]) -> Answer:
    """Call a function in a copy of this process, which prints nowhere; raise what it raises.

    Raises:
        DevwidgetError: if the copy does not answer.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        # The warning is about locks that other threads hold: the copy uses none of the threads.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(read)
        _answer_and_exit(write, question)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as pipe:
            letter = pipe.read()
    except BaseException:
        # Such as an interrupt: the copy must not go on alone.
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
    if not letter:
        raise DevwidgetError(Message("the process of this rank died"))
    found: Answer = _read_answer(letter)
    return found


def _answer_and_exit(write: int, question: Callable[[], object]) -> None:
    """Answer, in the copy, and end it without any clean-up that is the original's."""
    try:
        _silence_output()
        # A fork copies the calling thread alone: what is given to the pool of threads would wait for ever.
        torch.set_num_threads(1)
        letter = pack_answer(question)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(letter)
    finally:
        # Not `sys.exit`: what the original has registered for its own end must not run twice.
        os._exit(0)


def _silence_output() -> None:
    """Send what the copy prints nowhere: it would be in the user's cell once for each rank."""
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the process ends with it


def answer_in_folder(folder: str) -> None:
    """Answer the question that lies in a folder, and leave the answer there."""
    with Path(folder, QUESTION).open("rb") as file:
        # Paths and cells come first: the question names modules and cells that cannot be found without.
        sys.path[:], cells, switches = pickle.load(file)
        linecache.cache.update(cells)
        letter = pack_answer(functools.partial(_answer_question, file, switches))
    Path(folder, ANSWER).write_bytes(letter)


def _answer_question(file: BinaryIO, switches: dict[str, Any]) -> Any:
    question, about = pickle.load(file)
    set_switches(switches)
    return question(*about)


class QuestionPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes what a notebook has defined with its source, and tensors without values."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._storages = _SentStorages()

    def reducer_override(self, obj: Any) -> Any:
        """Pickle tensors without values, and modules that refuse to be pickled for their tensors; the rest as always."""
        if isinstance(obj, torch.Tensor) and obj.layout == torch.strided and not obj.is_nested:
            return _describe_tensor(obj, self._storages)
        if isinstance(obj, torch.nn.Module) and is_parametrized(obj):
            return object.__new__, (type(obj),), vars(obj)
        if isinstance(obj, type) and obj.__module__ == torch.__name__ and hasattr(torch, obj.__qualname__):
            # While virtual GPUs run, `torch.device` is a class of theirs, and torch's own is found by no name.
            return getattr, (torch, obj.__qualname__)
        return super().reducer_override(obj)


def write_question(question: Callable[..., Any], *about: Any) -> bytes:
    """Pickle a question with the settings of torch here; raise DevwidgetError for what cannot be pickled."""
    file = io.BytesIO()
    try:
        pickle.dump((sys.path, _notebook_cells(), switches_now()), file)
        QuestionPickler(file).dump((question, about))
    except Exception as error:
        # Of any class of the user's.
        raise DevwidgetError(
            Message("the model cannot be sent to another process: {error}", error=error_text(error)),
            why=Message("GPUs, real or virtual, are in use here, and a plan needs its own virtual ones"),
            instead=Message("plan first, then start GPUs"),
        ) from error
    return file.getvalue()


def pack_answer(question: Callable[[], object]) -> bytes:
    """Return what a function returns or raises, pickled for `_read_answer`."""
    try:
        return bytes(cloudpickle.dumps((question(), None)))
    except Exception as error:
        return _pack_failure(error)


def _pack_failure(error: Exception) -> bytes:
    """Pickle an exception, to be raised again elsewhere; of its traceback only the text goes along."""
    if not isinstance(error, DevwidgetError):
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
    try:
        return bytes(cloudpickle.dumps((None, error)))
    except Exception:
        # An exception of the user's that holds what cannot be written.
        return bytes(cloudpickle.dumps((None, DevwidgetError(error_text(error)))))


def _read_answer(letter: bytes) -> Any:
    found, error = pickle.loads(letter)
    if error is not None:
        raise error
    return found


def _notebook_cells() -> dict[str, Any]:
    """Return the lines of the cells of a notebook, which are in no file."""
    known = {name: entry for name, entry in linecache.cache.items() if len(entry) == 4}
    return {name: entry for name, entry in known.items() if entry[1] is None}


# Where a tensor that was sent is in the process that it comes from.
PLACE = "_devwidget_sent_from"


@dataclass(eq=False)
class SentStorage:
    """The memory of tensors.

    Attributes:
        nbytes: its size.
        values: what it holds; None if that is unknown or not needed.
    """

    nbytes: int
    values: bytes | None

    @functools.cached_property
    def storage(self) -> torch.UntypedStorage:
        """That memory in this process, on meta if its values are unknown; the same storage for all who ask."""
        if self.values is None:
            return torch.UntypedStorage(self.nbytes, device="meta")  # type: ignore[no-untyped-call]
        if not self.values:
            return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
        return torch.frombuffer(bytearray(self.values), dtype=torch.uint8).untyped_storage()


class _SentStorages:
    def __init__(self) -> None:
        self._sent: dict[int, SentStorage] = {}

    def send_storage(self, tensor: torch.Tensor) -> SentStorage:
        """Return what is sent in place of the memory of a tensor."""
        with hide_from_modes(), DisableTorchFunction(), no_gradients():
            storage = tensor.untyped_storage()
            if storage._cdata not in self._sent:
                is_known = not (tensor.requires_grad or is_parameter(tensor)) and storage.nbytes() <= most_bytes(tensor.dtype)
                self._sent[storage._cdata] = SentStorage(storage.nbytes(), _read_values(storage) if is_known else None)
            return self._sent[storage._cdata]


def _read_values(storage: torch.UntypedStorage) -> bytes | None:
    """Return the bytes of a storage on any device; where values are not computed, those that are known."""
    kept = getattr(storage, "_devwidget_values", None)
    source = storage if kept is None else kept
    if source.device.type == "meta":
        return None
    return bytes(torch.empty(0, dtype=torch.uint8).set_(source.cpu()).numpy().tobytes())


def _describe_tensor(tensor: torch.Tensor, storages: _SentStorages) -> tuple[Any, ...]:
    place = str(device_of(tensor))
    with hide_from_modes(), DisableTorchFunction():
        shape = tuple(tensor.size()), tensor.stride(), tensor.storage_offset()
        rest = tensor.dtype, tensor.requires_grad, type(tensor), tensor.is_conj(), tensor.is_neg()
    made_of = (storages.send_storage(tensor), place, *shape, *rest)
    return _remake_tensor, made_of, dict(vars(tensor)), None, None, _set_attributes


def _remake_tensor(
    sent: SentStorage, place: str, size: Any, stride: Any, offset: int,
    dtype: torch.dtype, requires_grad: bool, kind: Any, is_conj: bool, is_neg: bool,
) -> torch.Tensor:  # fmt: skip
    made = torch.empty(0, dtype=dtype, device=sent.storage.device).set_(sent.storage, offset, size, stride)
    made = conjugate_view(made) if is_conj else made
    made = negative_view(made) if is_neg else made
    if kind is not torch.Tensor:
        if issubclass(kind, torch.nn.Parameter):
            made = kind(made, requires_grad)
        else:
            made = made.as_subclass(kind)
    made.requires_grad_(requires_grad)
    setattr(made, PLACE, place)
    return made


def _set_attributes(tensor: torch.Tensor, attributes: dict[str, Any]) -> None:
    tensor.__dict__.update(attributes)


def original_device(tensor: torch.Tensor) -> torch.device:
    """Return where a tensor is in the process that it comes from."""
    place = vars(tensor).get(PLACE)
    return tensor.device if place is None else torch.device(place)
