"""A script whose characters have models of their own: each line is spoken by its own, and heard in order."""

from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import ByVoice, Delivery
from qwen3_tts_morph.morph.checkpoint.adapter_file import read_adapter
from qwen3_tts_morph.morph.kept.render import Listener, speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.morph.adapters import write_adapter

OPTIONS = GenerateOptions(sampling=Sampling(max_seconds=0.4), retries=0)


@pytest.fixture(scope="module")
def models(checkpoint, tmp_path_factory) -> tuple[Synthesizer, Synthesizer]:
    path = checkpoint("tiny", "custom_voice")
    base = Synthesizer.load(path, LoadOptions("fp32"))
    return base, base.with_adapter(read_adapter(write_adapter(tmp_path_factory.mktemp("anna"), path)), 1.0, path)


def alone(synthesizer: Synthesizer, lines: list[Line]) -> list[np.ndarray]:
    with Batch(synthesizer, 4, linger_s=None) as batch:
        return [one.waveform for one in speak_lines(batch, lines, OPTIONS)]


@pytest.mark.parametrize("is_heard", [False, True])
def test_each_line_is_spoken_by_its_own_model_and_heard_in_order(models, is_heard):
    base, adapted = models
    ryan = preset_voice(base.model, "ryan")
    anna = replace(ryan, by="anna")
    lines = [Line(f"Line {number}.", (ryan, anna)[number % 2], seed=number) for number in range(4)]
    heard: dict[int, list[np.ndarray]] = {}
    listener = Listener(on_sound=lambda index, samples: heard.setdefault(index, []).append(samples))
    with Batch(base, 4, linger_s=None) as main, Batch(adapted, 4, linger_s=None) as other:
        speaks = ByVoice(main, {"anna": other})
        spoken = speak_lines(speaks, lines, OPTIONS, listener=listener if is_heard else None)
        keys = [speaks.key(line, OPTIONS) for line in lines]
        assert keys == [(main, other)[number % 2].key(line, OPTIONS) for number, line in enumerate(lines)]
        assert keys[1] != main.key(lines[1], OPTIONS)
        report = speaks.describe(spoken, OPTIONS, 1.0)
        assert report.endswith(f"- characters with models of their own: {adapted.model.title}")
        [first] = speaks.speak_all(lines[1:2], OPTIONS, [Delivery()])
        first.cancel()
    for which, synthesizer in enumerate(models):
        own = lines[which::2]
        for one, alike in zip(spoken[which::2], alone(synthesizer, own), strict=True):
            assert np.allclose(one.waveform, alike, atol=1e-4)
    assert not np.array_equal(spoken[1].waveform, alone(base, lines[1:2])[0])
    assert list(heard) == ([0, 1, 2, 3] if is_heard else [])
