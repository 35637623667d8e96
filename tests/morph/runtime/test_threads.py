"""Jobs in threads that are used again; wake-ups of a waiting thread."""

import gc
import threading
import weakref

import pytest
from qwen3_tts_morph.morph.runtime.threads import MOST_IDLE, Task, ThreadPool, WakeUpEvent

from tests.patience import PATIENCE, wait_until


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Each case counts its own threads."""
    return str(request.node.name)


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_a_job_gets_the_thread_of_the_one_before(name):
    pool, seen = ThreadPool(name), []
    for _ in range(3):
        pool.start(lambda: seen.append(threading.get_ident())).join()
    assert len(seen) == 3 and len(set(seen)) == 1 and seen[0] != threading.get_ident()


def test_a_job_never_waits_for_another(name):
    pool, gate = ThreadPool(name), threading.Event()
    held = [pool.start(gate.wait) for _ in range(MOST_IDLE + 2)]
    pool.start(lambda: None).join()
    gate.set()
    for job in held:
        job.join()
    wait_until(lambda: threads(name) == MOST_IDLE == len(pool._idle._queues) and not pool._idle.working)


def test_a_thread_keeps_nothing_of_its_last_job(name):
    class Large:
        pass

    pool, large = ThreadPool(name), Large()
    gone = weakref.ref(large)
    pool.start(lambda large=large: None).join()
    del large
    gc.collect()
    assert gone() is None


def test_a_job_that_fails_ends_and_is_reported(name, monkeypatch):
    pool, reported = ThreadPool(name), []
    monkeypatch.setattr(threading, "excepthook", lambda failed: reported.append(str(failed.exc_value)))

    def fail() -> None:
        raise RuntimeError("broken")

    pool.start(fail).join()
    pool.start(lambda: None).join()
    wait_until(lambda: reported == ["broken"])


def test_a_job_knows_that_it_runs(name):
    pool, jobs, seen = ThreadPool(name), [], []
    ready = threading.Event()

    def look() -> None:
        ready.wait()
        job: Task = jobs[0]
        seen.append(job.is_current)
        with pytest.raises(RuntimeError, match="its own end"):
            job.join()

    jobs.append(pool.start(look))
    ready.set()
    jobs[0].join()
    assert seen == [True] and not jobs[0].is_current


def test_a_wait_ends_with_its_time_however_short() -> None:
    wake_up, waited = WakeUpEvent(), list[bool]()

    def wait() -> None:
        for _ in range(20_000):
            wake_up.set()
            wake_up.set()
            waited.extend((wake_up.wait(), wake_up.wait(1e-6)))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert waited == [True, False] * 20_000


def test_a_wake_up_wakes_a_thread_that_waits() -> None:
    wake_up, woken = WakeUpEvent(), list[bool]()
    thread = threading.Thread(target=lambda: woken.append(wake_up.wait(PATIENCE)), daemon=True)
    thread.start()
    assert not wake_up.wait(0)
    wake_up.set()
    thread.join(PATIENCE)
    assert woken == [True] and not wake_up.wait(0)
