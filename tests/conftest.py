"""For every test: one thread, and proof that no hook, mode or patch is left behind."""

from __future__ import annotations

import gc
import os
import pathlib
import re
import signal
import traceback
from collections import Counter
from collections.abc import Generator, Iterator
from unittest import mock

import pytest
import torch

import devwidget
from devwidget.gpus import simulate
from devwidget.records.errors import DevwidgetError
from devwidget.trying import side_effects, trials
from tests import faults
from tests.golden import golden as golden
from tests.golden import pytest_addoption as pytest_addoption
from tests.older_torch import IS_OLDER
from tests.strict_sentences import strict_sentences

os.environ["LANGUAGE"] = "en"  # also in the processes that tests start
# What a shell starts in the background is deaf to Ctrl-C, and so are its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # without the tests that are not selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that may take long come first, so that no process waits for another at the end."""
    longest: dict[pathlib.Path, float] = {}
    for item in items:
        longest[item.path] = max(longest.get(item.path, 0), seconds_allowed(item))
    items.sort(key=lambda item: -longest[item.path])


def seconds_allowed(item: pytest.Item) -> float:
    """The time limit of a test: its own, or the usual one if it starts a browser or another process."""
    own = item.get_closest_marker("timeout")
    if own is not None:
        return float(own.args[0])
    takes_long = any(item.get_closest_marker(name) for name in ("browser", "process", "slow"))
    return USUAL_SECONDS if takes_long else 0


USUAL_SECONDS = 300


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print where the time went: seconds of the tests of each file, with their fixtures."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > SLOWEST:
        terminalreporter.section(f"{SLOWEST} slowest files")
        for path, total in seconds.most_common(SLOWEST):
            terminalreporter.write_line(f"{total:8.1f} s  {path}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported is no garbage, and to look for some takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was imported stays, so that collections of garbage need not walk through it, 0.3 s each time."""
    settle()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """So does what the tests of a file have imported: at the end of a suite it would be 1.3 s each time."""
    yield
    if nextitem is None or nextitem.path != item.path:
        settle()


SLOWEST = 10


def settle() -> None:
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """A test of what an older torch lacks skips, in the words that users read, or in torch's where the test itself asks it."""
    try:
        return (yield from skip_what_is_missing())
    except (AttributeError, ImportError) as error:
        skip_if_asked_by_the_test(error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    return (yield from skip_what_is_missing())


def skip_what_is_missing() -> Generator[None, object, object]:
    try:
        return (yield)
    except DevwidgetError as error:
        skip_if_missing(error)
        raise


def skip_if_missing(error: DevwidgetError) -> None:
    if MISSING.search(error.what) and IS_OLDER:
        pytest.skip(error.what)


def skip_if_asked_by_the_test(error: AttributeError | ImportError) -> None:
    """A name that the test itself looks up in torch; what the package looks up in vain is a fault."""
    asking = [pathlib.Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    if NO_SUCH_NAME.search(str(error)) and IS_OLDER and not any(PACKAGE in path.parents for path in asking):
        pytest.skip(f"torch {torch.__version__}: {error}")


PACKAGE = pathlib.Path(devwidget.__file__).parent
NO_SUCH_NAME = re.compile(
    "^module 'torch[^']*' has no attribute|^cannot import name .* from 'torch|^No module named 'torch|^Unknown attribute "
)
MISSING = re.compile("virtual GPUs do not support torch|^torch .* has no `")


@pytest.fixture(scope="session")
def virtual_gpus() -> None:
    """For tests of other processes: skips where torch is too old for virtual GPUs."""
    try:
        with simulate(gpus=1):
            pass
    except DevwidgetError as error:
        skip_if_missing(error)
        raise


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """With two intra-op threads and other load the zoo takes 10 to 50 times as long."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """One small network in some hundred has no unit that answers its batch, and learns nothing."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _trials_have_time() -> Iterator[None]:
    """On a machine that does other things too a small step takes longer than a step that is tried unasked may take."""
    with mock.patch.object(side_effects, "MOST_SECONDS", 200.0), mock.patch.object(trials, "LAST_BEGIN_SECONDS", 200.0):
        yield


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    before = faults.world()
    yield
    assert faults.left_behind(before) == []


@pytest.fixture(autouse=True)
def _sentences_are_borne_out() -> Iterator[None]:
    with strict_sentences():
        yield
