"""The simulated device: lines have their frames, work takes its time in its order, and nothing of it stays."""

import time
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")

from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.graph import pool
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.graph.rows import Readback
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.benchmarks.server_process import prepare_checkpoint
from lab.benchmarks.simulated import Times, simulated

TIMES = Times(frame=0.002, prompt=0.001, step=0.001, line=0.0)


def test_lines_have_their_frames_and_take_the_device_s_time(tmp_path: Path) -> None:
    checkpoint, _ = prepare_checkpoint(tmp_path, "tiny", preset=True)
    model, init = load_model(checkpoint), Readback.__init__
    voice = preset_voice(model, "ryan")
    with simulated(TIMES), Batch(Synthesizer(model, Engine("graph")), rows=4) as service:
        began = time.perf_counter()
        spoken = [
            service.speak(
                Line("Hello there.", voice, "english", seed),
                GenerateOptions(5, Sampling(max_seconds=seconds)),
            )
            for seed, seconds in enumerate((0.8, 1.6))
        ]
        frames = [sum(len(chunk.codes) for chunk in one) for one in spoken]
        took = time.perf_counter() - began
    assert frames == [10, 20] and took > 20 * TIMES.frame
    assert pool.FrameBackend is FrameBackend and Readback.__init__ is init
