"""The table of streams: a dry run, and what its reader makes of chunks that come late."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.speech import Chunk

from lab.benchmarks import stream
from lab.benchmarks.stream import listen
from tests.lab.benchmarks.test_tables import rows_of

RATE = 24000


@pytest.mark.slow
def test_the_table(tmp_path: Path) -> None:
    options = "--engines", "auto", "graph", "eager", "--lines", "1", "2", "--seq-groups", "5"
    rows = rows_of(stream, tmp_path, *options)
    assert [(row["engine"], row["lines"]) for row in rows] == [
        (engine, lines) for engine in ("auto", "graph", "eager") for lines in (1, 2)
    ]
    for row in rows:
        assert row["table"] == "stream" and row["batch"] == row["lines"]
        assert 0 < row["first_playable_ms"] <= row["first_audible_ms"]
        assert (row["gap_ms"] > 0) == (row["underruns"] > 0)


def test_one_line_says_when_its_steps_were_reached(tmp_path: Path) -> None:
    options = "--engines", "graph", "--voices", "x_vector", "icl", "--seq-groups", "5"
    rows = rows_of(stream, tmp_path, *options)
    assert [row["voice"] for row in rows] == ["x_vector", "icl"]
    steps = "prompt_ms", "prefill_launched_ms", "codec_began_ms", "codec_done_ms"
    for row in rows:
        times = [row[name] for name in (*steps, "first_playable_ms")]
        assert times == sorted(times) and row["prefill_done_ms"] >= row["prefill_launched_ms"]
        assert row["prefill_launched_ms"] <= row["codes_ms"] <= row["codec_done_ms"]


class Clock:
    """A clock that only ``chunks`` moves."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def chunks(clock: Clock, *parts: tuple[float, int, float]) -> Iterator[Chunk]:
    """Chunks that come after these seconds, of this many samples of noise, this loud."""
    random = np.random.default_rng(0)
    for wait, length, level in parts:
        clock.now += wait
        samples = (level * random.normal(size=length)).astype(np.float32)
        yield Chunk(torch.zeros(0, 16, dtype=torch.int64), samples, 0, False)


def test_a_late_chunk_is_an_underrun_and_silence_is_not_audible(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(stream, "time", clock)
    heard = listen(chunks(clock, (0.02, 0, 0), (0.02, 1920, 1e-4), (0.2, 960, 0.1), (0, 10, 1)), 0.0, RATE)
    assert heard.playable_s == pytest.approx(0.04)
    assert heard.underruns == 1 and heard.gap_s == pytest.approx(0.12)
    assert heard.audible_s == pytest.approx(0.24), "played when it has come"
