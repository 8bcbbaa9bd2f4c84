"""Nodes on one machine: each has a network, a host name and process numbers of its own, and all write one folder.

`python -m tests.distributed.nodes` imports torch once and then starts a job for each line that it reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).parents[2]
_NAMESPACES = 0x00020000 | 0x04000000 | 0x20000000 | 0x40000000
"""Of mounts, host names, process numbers and networks."""
_PORT = 29611
OWN_FOLDER = "/mnt/ranks"
"""Of each node that has one of its own: nothing of it can be seen from the others."""
LONGEST = 120


def can_have_nodes() -> bool:
    """Whether this user may make such namespaces, and wires between them."""
    if os.getuid() or sys.platform != "linux":
        return False
    tried = "ip link add dwtry0 type veth peer name dwtry1 && ip link del dwtry0"
    return subprocess.run(["unshare", "--mount", "--uts", "--pid", "--net", "--fork", "sh", "-c", tried],
                          capture_output=True).returncode == 0  # fmt: skip


@dataclass
class Nodes:
    """A job of ranks on nodes.

    Attributes:
        folder: that all ranks write.
        pids: of the ranks, as this machine numbers them.
    """

    folder: pathlib.Path
    pids: list[int]

    def signal(self, number: signal.Signals, *ranks: int) -> None:
        for rank in ranks or range(len(self.pids)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], number)

    def end(self, stopped: int = -1) -> None:
        """End all ranks as torchrun's agent does; one that is stopped by SIGKILL."""
        self.signal(signal.SIGTERM, *(rank for rank in range(len(self.pids)) if rank != stopped))
        if stopped >= 0:
            self.signal(signal.SIGKILL, stopped)
        until = time.monotonic() + LONGEST
        while any(map(_is_running, self.pids)):
            assert time.monotonic() < until, "it did not end"
            time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Starter:
    """Starts jobs, one after the other."""

    def __init__(self) -> None:
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "dwnode"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.nodes"], env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip

    @contextlib.contextmanager
    def job(self, nodes: int, ranks: int, fault: str, guilty: int, every: float, *, apart: bool = False) -> Iterator[Nodes]:
        """A job of some nodes with a fault; `apart`: each has a folder of its own, and they hear of each other by relays."""
        with tempfile.TemporaryDirectory(prefix="nodes-") as above:
            folder = pathlib.Path(above) / "job"
            facts = {"fault": fault, "guilty": guilty, "every": every, "apart": apart}
            asked = {"nodes": nodes, "ranks": ranks, "folder": str(folder), **facts}
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            assert select.select([self._process.stdout], [], [], LONGEST)[0], "no job was started"
            pids = json.loads(self._process.stdout.readline())
            try:
                yield Nodes(folder, pids)
            finally:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                print("over", file=self._process.stdin, flush=True)
                assert select.select([self._process.stdout], [], [], LONGEST)[0], "the job did not end"
                self._process.stdout.readline()

    def close(self) -> None:
        self._process.communicate("", timeout=LONGEST)


def _sh(*commands: str) -> None:
    subprocess.run(["sh", "-ec", "\n".join(commands)], check=True, stdout=sys.stderr)


def _begin_node(at: int, asked: dict[str, object], ready: int, told: int) -> None:
    """In a process of its own: leave the machine, wait for the wire, and begin the ranks."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with who has begun it
    if ctypes.CDLL(None, use_errno=True).unshare(_NAMESPACES):
        raise OSError(ctypes.get_errno(), "no namespaces")
    os.write(told, b"x")
    os.read(ready, 1)
    if (init := os.fork()) == 0:  # the first process of the new numbers
        socket.sethostname(f"node{at}")
        address = f"10.77.0.{at + 1}/24"
        _sh("mount --make-rprivate /", "mount -t proc proc /proc", *_names_without_a_server(), "ip link set lo up",
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6", f"ip addr add {address} dev dwnode",
            "ip link set dwnode up")  # fmt: skip
        os.write(told, b"x")
        os.read(ready, 1)
        ranks = int(str(asked["ranks"]))
        children = [_begin_rank(at, local, asked) for local in range(ranks)]
        for child in children:
            os.waitpid(child, 0)
        os._exit(0)
    os.waitpid(init, 0)
    os._exit(0)


def _names_without_a_server() -> tuple[str, ...]:
    """Who is asked for a name has no network, and who asks would wait for seconds."""
    names = "".join(f"10.77.0.{at + 1} node{at}\\n" for at in range(16))
    places = {"hosts": "/etc/hosts", "nsswitch": "/etc/nsswitch.conf", "resolv": "/etc/resolv.conf"}
    return (
        "mount -t tmpfs none /mnt",
        f"printf '127.0.0.1 localhost\\n{names}' > /mnt/hosts",
        "echo 'hosts: files' > /mnt/nsswitch",
        "echo 'nameserver 127.0.0.1' > /mnt/resolv",
        f"touch {' '.join(places.values())}",
        *(f"mount --bind /mnt/{name} {place}" for name, place in places.items()),
    )


def _begin_rank(at: int, local: int, asked: dict[str, object]) -> int:
    child = os.fork()
    if child:
        return child
    ranks, nodes = int(str(asked["ranks"])), int(str(asked["nodes"]))
    numbers = {"RANK": at * ranks + local, "LOCAL_RANK": local, "WORLD_SIZE": nodes * ranks, "MASTER_PORT": _PORT}
    os.environ.update({name: str(number) for name, number in numbers.items()})
    folder = str(asked["folder"])
    os.environ.update(MASTER_ADDR="10.77.0.1", DEVWIDGET_RANKS=folder, TORCHELASTIC_RUN_ID=folder, STRUCK=folder)
    if asked["apart"]:
        os.environ.update(DEVWIDGET_RANKS=OWN_FOLDER, DEVWIDGET_KEY=f"{folder}.key", LOCAL_WORLD_SIZE=str(ranks))
    os.dup2(2, 1)
    from tests.distributed import faulty

    status = 1
    try:
        faulty.main(str(asked["fault"]), int(str(asked["guilty"])), float(str(asked["every"])), nodes=bool(asked["apart"]))
        status = 0
    except BaseException as error:
        # As the end of a program would.
        sys.excepthook(type(error), error, error.__traceback__)
    import atexit

    atexit._run_exitfuncs()
    os._exit(status)


def _start(asked: dict[str, object]) -> tuple[list[int], list[int]]:
    """Begin all nodes, joined by a bridge in a network of its own; processes of the nodes, and the ranks'."""
    nodes = int(str(asked["nodes"]))
    begun, wires = [], []
    for at in range(nodes):
        (ready, go), (heard, told) = os.pipe(), os.pipe()
        if (child := os.fork()) == 0:
            _begin_node(at, asked, ready, told)
        os.read(heard, 1)
        port = f"dw{child}"
        wires += [f"ip link add {port} type veth peer name dwnode netns {child}",
                  f"ip link set {port} master dwbridge", f"ip link set {port} up"]  # fmt: skip
        begun.append((child, go, heard))
        os.close(ready)
        os.close(told)
    _sh(*wires)
    for _, go, _ in begun:
        os.write(go, b"x")
    for _, _, heard in begun:  # each node has an address before any rank looks for another
        os.read(heard, 1)
    for _, go, heard in begun:
        os.write(go, b"x")
        os.close(go)
        os.close(heard)
    until, count = time.monotonic() + LONGEST, nodes * int(str(asked["ranks"]))
    while True:
        ranks = [rank for child, *_ in begun for init in _children(child) for rank in _children(init) if _is_python(rank)]
        if len(ranks) == count:
            return [child for child, *_ in begun], ranks
        assert time.monotonic() < until, "no ranks"
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_python(pid: int) -> bool:
    """A rank, not a command that configures its network."""
    with contextlib.suppress(OSError):
        return b"tests.distributed.nodes" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def main() -> None:
    import torch._dynamo
    import torch.distributed
    import torch.utils.data  # noqa: F401

    import devwidget  # noqa: F401
    from devwidget.distributed import agent  # noqa: F401
    from tests.distributed import faulty  # noqa: F401

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if ctypes.CDLL(None).unshare(0x40000000):
        raise OSError("no network of our own")
    _sh("ip link add dwbridge type bridge forward_delay 0", "ip link set dwbridge up")
    for line in sys.stdin:
        nodes, ranks = _start(json.loads(line))
        print(json.dumps(ranks), flush=True)
        sys.stdin.readline()
        for node in nodes:
            os.waitpid(node, 0)
            # Its network is taken down some time later, and would answer for an address of the next job until then.
            subprocess.run(["ip", "link", "del", f"dw{node}"], capture_output=True)
        print("over", flush=True)


if __name__ == "__main__":
    main()
