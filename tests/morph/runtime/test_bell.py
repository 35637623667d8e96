"""A bell wakes its thread, and a short wait for it ends."""

import threading

from qwen3_tts_morph.morph.runtime.bell import Bell

from tests.patience import PATIENCE


def test_a_wait_ends_with_its_time_however_short() -> None:
    bell, waited = Bell(), list[bool]()

    def wait() -> None:
        for _ in range(20_000):
            bell.set()
            bell.set()
            waited.extend((bell.wait(), bell.wait(1e-6)))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert waited == [True, False] * 20_000


def test_a_bell_wakes_a_thread_that_waits() -> None:
    bell, woken = Bell(), list[bool]()
    thread = threading.Thread(target=lambda: woken.append(bell.wait(PATIENCE)), daemon=True)
    thread.start()
    assert not bell.is_set
    bell.set()
    thread.join(PATIENCE)
    assert woken == [True] and not bell.is_set
