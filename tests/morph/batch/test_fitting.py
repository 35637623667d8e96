"""How many rows a running batch has."""

from types import SimpleNamespace

import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Delivery
from qwen3_tts_morph.morph.graph.pool import CPU_ROWS, ROW_POSITIONS, ROWS_SHARE, most_rows, position_bytes
from qwen3_tts_morph.morph.options import AUTO_ROWS, MOST_LINES, GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.streams import render_lines, stream_lines

OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=5), retries=0)
LONG = "Nine words are in each of these few sentences. " * 3  # three pieces of 60 characters


@pytest.fixture
def rows(monkeypatch) -> list[int]:
    seen: list[int] = []
    open_rows = Engine.open_rows

    def note(self, model, options, plan, *more):
        seen.append(plan.rows)
        return open_rows(self, model, options, plan, *more)

    monkeypatch.setattr(Engine, "open_rows", note)
    return seen


def lines(synthesizer: Synthesizer, *texts: str) -> list[Line]:
    voice = preset_voice(synthesizer.model, "ryan")
    return [Line(text, voice, seed=index) for index, text in enumerate(texts)]


@pytest.mark.parametrize("batch_size, wanted", [(AUTO_ROWS, 5), (4, 4), (8, 5)])
def test_complete_lines_have_a_row_for_each_piece(synthesizer, rows, batch_size, wanted):
    options = GenerateOptions(5, OPTIONS.sampling, batch_size, split_chars=60, retries=0)
    assert len(render_lines(synthesizer, lines(synthesizer, "One.", LONG, "Two."), options)) == 3
    assert rows == [wanted]


def test_lines_that_are_heard_have_one_row_each(synthesizer, rows):
    options = GenerateOptions(5, OPTIONS.sampling, split_chars=60, retries=0)
    with stream_lines(synthesizer, lines(synthesizer, "One.", LONG), options) as stream:
        assert list(stream)
    assert rows == [2]


def test_lines_that_come_later_wait_for_a_row(synthesizer, rows):
    with Batch(synthesizer, AUTO_ROWS, linger_s=None) as batch:
        assert batch.rows == CPU_ROWS
        first, *others = lines(synthesizer, "One.", "Two.", "Three.")
        speeches = [batch.speak(first, OPTIONS, Delivery(live=False))]
        speeches += batch.speak_all(others, OPTIONS, [Delivery(live=False)] * 2)
        assert [len(speech.result().waveform) > 0 for speech in speeches] == [True] * 3
    assert rows[0] in (1, 3)  # three, where the thread looked after the last had come


@pytest.mark.parametrize("gigabytes, wanted", [(0.01, 1), (6, 43), (80, MOST_LINES)])
def test_a_gpus_memory_bounds_the_rows(monkeypatch, gigabytes, wanted):
    talker = SimpleNamespace(num_hidden_layers=28, num_key_value_heads=8, head_dim=128, hidden_size=1024)
    model = SimpleNamespace(
        device=torch.device("cuda"), dtype=torch.bfloat16, config=SimpleNamespace(talker_config=talker)
    )
    free = int(gigabytes * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free - 2**20, 2 * free))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 3 * 2**20)  # a MiB of which is in use
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2**21)
    row_bytes = ROW_POSITIONS * position_bytes(model)
    assert row_bytes == 512 * (2 * 28 * 8 * 128 + 1024) * 2
    assert most_rows(model) == wanted == max(1, min(MOST_LINES, int(ROWS_SHARE * free) // row_bytes))
