"""What the service's thread tells an event loop."""

import asyncio
import threading

from qwen3_tts_morph.serve.routes.speaker import News

from tests.patience import PATIENCE


def test_one_call_of_the_loop_wakes_all_who_have_news() -> None:
    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        calls, call_soon = [], loop.call_soon_threadsafe
        news, readers = News(loop), [asyncio.Event() for _ in range(40)]
        loop.call_soon_threadsafe = lambda *a, **k: calls.append(a) or call_soon(*a, **k)
        thread = threading.Thread(target=lambda: [news.tell(reader) for reader in readers])
        thread.start()
        thread.join()  # the loop has not run meanwhile
        first = len(calls)
        for reader in readers:
            await asyncio.wait_for(reader.wait(), PATIENCE)
        readers[0].clear()
        news.tell(readers[0])
        await asyncio.wait_for(readers[0].wait(), PATIENCE)
        del loop.call_soon_threadsafe
        return first, len(calls)

    assert asyncio.run(main()) == (1, 2)


def test_nobody_is_told_when_the_loop_has_ended() -> None:
    async def main() -> News:
        return News(asyncio.get_running_loop())

    news = asyncio.run(main())
    news.tell(asyncio.Event())
    news.tell(asyncio.Event())
