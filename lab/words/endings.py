"""References that end well or abruptly: what the checkpoint's presets say, whole or cut at its end.

Their words are known, and when each is said: the alignment head tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from qwen3_tts_morph.morph.batch.stream import render_lines
from qwen3_tts_morph.morph.codec.upstream import encode_waveform
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.word_times import word_times
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from .lines import read_part
from .times import QUIET_DB, STEP_S

# "whole": as it was spoken, with the quiet at its end. "word": cut after the last sample of its last word. "inside":
# cut in the middle of its last word, which the transcript has. "anywhere": cut within its last sentence, wherever that
# is, and the transcript has what the recogniser hears.
ENDINGS = ("whole", "word", "inside", "anywhere")
SEED = 500


@dataclass(frozen=True, eq=False)
class Recording:
    """What a preset said.

    Args:
        waveform: float32 ``[T]``.
        sample_rate: Hz.
        text: all of its words.
        sentence: the second at which its last sentence begins.
        word: the second at which its last word begins.
    """

    waveform: np.ndarray
    sample_rate: int
    text: str
    sentence: float
    word: float

    @property
    def loud_samples(self) -> int:
        """How many samples there are up to the last one that is not quiet, to a step of ``STEP_S``."""
        size = round(STEP_S * self.sample_rate)
        steps = self.waveform[: len(self.waveform) // size * size].reshape(-1, size)
        power = np.square(steps, dtype=np.float64).mean(axis=1)
        return (int(np.flatnonzero(power >= power.max() * 10 ** (QUIET_DB / 10))[-1]) + 1) * size


def make_recordings(synthesizer: Synthesizer, count: int) -> list[Recording]:
    """Return recordings of the presets in turn, two sentences each, of the part whose lines are not measured."""
    model, sentences = synthesizer.model, read_part("development")
    pairs = list(zip(sentences[::2], sentences[1::2], strict=False))[:count]
    if len(pairs) < count:
        raise ValueError(
            f"there are {len(pairs)} pairs of sentences and {count} are asked for: ask for fewer"
        )
    speakers = [preset_voice(model, name) for name in model.speakers]
    lines = [
        Line(" ".join(pair), speakers[index % len(speakers)], "english", SEED + index)
        for index, pair in enumerate(pairs)
    ]
    recordings = []
    options = GenerateOptions(split_chars=0, wrong_words="retry", retries=3)
    for pair, spoken in zip(pairs, render_lines(synthesizer, lines, options), strict=True):
        times = word_times(model, spoken)
        first = len(pair[0].split())
        recordings.append(
            Recording(
                spoken.waveform, spoken.sample_rate, " ".join(pair), times[first].start_s, times[-1].start_s
            )
        )
    return recordings


def end_recording(recording: Recording, ending: str, share: float) -> np.ndarray:
    """Return a recording's samples, float32 ``[T]``, as one of ENDINGS has them.

    ``share``: of the last sentence, after which "anywhere" cuts.
    """
    rate, last = recording.sample_rate, recording.loud_samples
    if ending == "whole":
        return recording.waveform
    if ending == "inside":
        last = (round(recording.word * rate) + last) // 2
    elif ending == "anywhere":
        first = round(recording.sentence * rate)
        last = first + round(share * (last - first))
    return recording.waveform[:last]


@dataclass(frozen=True, eq=False)
class Clone:
    """A voice (x-vector) of a reference: float32 ``[T]`` at the checkpoint's rate; and what its transcript says."""

    voice: Voice
    reference: np.ndarray
    transcript: str


def clone_ended(
    model: Model,
    hear: Callable[[Sequence[np.ndarray]], list[str]],
    recordings: Sequence[Recording],
    ending: str,
) -> list[Clone]:
    """Return a clone of each recording, cut as one of ENDINGS says.

    ``hear``: returns what is heard in waveforms at the checkpoint's rate.
    """
    shares = np.random.default_rng(0).uniform(0.4, 0.95, len(recordings))
    samples = [end_recording(one, ending, share) for one, share in zip(recordings, shares, strict=True)]
    transcripts = hear(samples) if ending == "anywhere" else [one.text for one in recordings]
    return [
        Clone(
            clone_voice(model, own, model.sample_rate, CloneOptions(name=f"{index} {ending}")),
            own,
            transcript,
        )
        for index, (own, transcript) in enumerate(zip(samples, transcripts, strict=True))
    ]


def pad_clone(model: Model, clone: Clone, padding_ms: int) -> Voice:
    """Return a clone as an ICL voice with this much silence after its reference."""
    padded = np.pad(clone.reference, (0, padding_ms * model.sample_rate // 1000))
    with model.exclusive():
        codes = encode_waveform(model, padded)
    name = f"{clone.voice.name} {padding_ms}"
    return replace(clone.voice, kind="icl", ref_codes=codes, transcript=clone.transcript, name=name)
