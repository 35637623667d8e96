"""Wake-ups of a waiting thread."""

import threading

from qwen3_tts_morph.morph.runtime.threads import WakeUpEvent

from tests.patience import PATIENCE


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
