"""The key that the nodes of a user share: a file that only this user can read."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import pathlib
import secrets
import stat
from collections.abc import Mapping

from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

KEY_VARIABLE = "DEVWIDGET_KEY"
"""The environment variable that names the file."""
_SHORTEST, _LONGEST = 32, 4096


def key_file(environ: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return where the key is: `$DEVWIDGET_KEY`, else in the home of the user, which the nodes of a cluster mostly share."""
    return pathlib.Path(environ[KEY_VARIABLE]) if environ.get(KEY_VARIABLE) else pathlib.Path.home() / ".devwidget" / "key"


def make_key() -> bytes:
    """Return the key, which is made if there is none; raise DevwidgetError if others could read it."""
    path = key_file()
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_once(path)
        except OSError as error:
            raise DevwidgetError(
                Message("the key {path} cannot be made: {error}", path=path, error=error.strerror), instead=_INSTEAD
            ) from None
    return read_key()


def _write_once(path: pathlib.Path) -> None:
    """Write a new key; of several nodes that do so at once the first wins, and none reads half of one."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink()


def read_key() -> bytes:
    """Return the key; raise DevwidgetError if there is none, or others could read it."""
    path = key_file()
    try:
        with open(path, "rb", opener=_open_own) as file:
            found, key = os.fstat(file.fileno()), file.read(_LONGEST).strip()
    except OSError as error:
        raise DevwidgetError(
            Message("the key {path} cannot be read: {error}", path=path, error=error.strerror), instead=_INSTEAD
        ) from None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        why = Message("whoever has the key can ask all nodes")
        raise DevwidgetError(
            Message("the key {path} is not this user's alone", path=path), why=why, instead=f"chmod 600 {path}"
        )
    if len(key) < _SHORTEST:
        raise DevwidgetError(
            Message("the key {path} has less than {count} characters", path=path, count=_SHORTEST), instead=_INSTEAD
        )
    return key


_INSTEAD = Message("one key on all nodes, which nobody else can read: DEVWIDGET_KEY=/home/you/.devwidget/key")


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def sign(key: bytes, text: str) -> str:
    """Return what only who has the key can write below a text."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def key_of_line(key: bytes, address: str, port: int) -> bytes:
    """Return the key by which one relay and its callers know each other.

    Who listens where a relay was, and is called by who has the key, could pass on to it what another relay asks; an answer that
    is of this address is none there.
    """
    return sign(key, f"{address} {port}").encode()


def is_signed(key: bytes, text: str, signature: str) -> bool:
    """Whether somebody with the key has signed a text."""
    return hmac.compare_digest(sign(key, text).encode(), signature.encode())
