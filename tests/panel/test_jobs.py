"""Jobs reach the main thread, one at a time."""

import asyncio
import signal
import threading
import time

from devwidget.panel.actions import MainThreadJobs


def test_without_a_loop_a_job_runs_where_it_is():
    ran = []
    assert MainThreadJobs().submit(lambda: ran.append(threading.current_thread())) == "done"
    assert ran == [threading.main_thread()]


def test_from_another_thread_a_job_waits_for_the_main_loop():
    ran, answers = [], []

    async def notebook():
        jobs = MainThreadJobs()
        click = threading.Thread(
            target=lambda: answers.extend(jobs.submit(lambda: ran.append(threading.current_thread())) for _ in (1, 2))
        )
        click.start()
        click.join()  # a cell that runs: the loop is blocked
        assert ran == []
        while not ran:
            await asyncio.sleep(0)

    asyncio.run(notebook())
    assert answers == ["queued", "busy"]
    assert ran == [threading.main_thread()]


def test_a_running_job_can_be_cancelled_and_the_next_one_runs():
    seen, before = [], signal.getsignal(signal.SIGINT)

    async def notebook():
        jobs = MainThreadJobs()
        started = threading.Event()

        def long():
            try:
                started.set()
                for _ in range(1000):  # a signal that comes just before a sleep does not end that one
                    time.sleep(0.01)
                seen.append("ran to its end")
            except KeyboardInterrupt:
                seen.append("cancelled")
                raise

        click = threading.Thread(target=lambda: (jobs.submit(long), started.wait(), jobs.cancel()))
        click.start()
        while not seen:
            await asyncio.sleep(0.01)
        click.join()
        assert jobs.cancel() is False
        jobs.submit(lambda: seen.append("next"))

    asyncio.run(notebook())
    assert seen == ["cancelled", "next"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_job_that_raises_leaves_the_way_free():
    jobs = MainThreadJobs()
    for _ in range(2):
        try:
            jobs.submit(lambda: 1 / 0)
        except ZeroDivisionError:
            continue
    assert jobs.submit(lambda: None) == "done"


def test_a_job_that_waits_can_be_cancelled_and_another_one_wait_in_its_place():
    jobs, ran = MainThreadJobs(), []
    later = []
    jobs._loop = type("Loop", (), {"call_soon_threadsafe": lambda _, run: later.append(run)})()

    def submitted(name):
        thread = threading.Thread(target=lambda: ran.append(jobs.submit(lambda: ran.append(name))))
        thread.start()
        thread.join()
        return ran.pop()

    assert (submitted("first"), submitted("second")) == ("queued", "busy")
    assert (jobs.cancel(), jobs.cancel()) == (True, False)
    assert submitted("third") == "queued"
    for run in later:
        run()
    assert ran == ["third"]
    assert jobs.submit(lambda: ran.append("next")) == "done"
    assert ran == ["third", "next"]
