"""Record the output of every way to speak, and compare it with an earlier recording: refactoring must not change it.

    python -m lab.benchmarks.recorded --record FILE.npz      # before; a few minutes on two cores
    python -m lab.benchmarks.recorded --compare FILE.npz     # after, on the same machine

Both engines in float32 on the CPU: S = 15, 5 and 1, trained and stock tails, INT8 weights, preset,
x-vector, ICL and designed voices; complete lines, streams, a scene, and lines that join a batch, also of late text.
Reports and codes must be equal. Samples must be equal too, or differ by less than -80 dB if the codec's batches
are others. A recording is valid on one processor and version of torch only: sums round differently elsewhere.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Chunk, Delivery
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.kept.render import Listener
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.script.dialogue import ScenePlayer, ScriptRequest, assemble, read_script
from qwen3_tts_morph.morph.speech.lines import Line, LineReport
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice
from qwen3_tts_morph.morph.voice.recording import read_recording
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.morph.words.timing import WordTime

from pack import ROOT

from ..check.parity import level_above
from ..random_checkpoint import KINDS, write_checkpoint
from ..streams import SynthesizerChecks, render_lines, stream_lines
from .origin import find_commit

NEAR_DB = 80.0
DEMO = "demo"
EXAMPLE = ROOT / "recordings" / "austen.flac"
TEXTS = (
    "We came home.",
    "No.",
    "Close the window [pause 0.2] now.",
    "He built this table.",
    "The train was late again. Her brother plays the guitar. It is a small garden.",
    "[pause 0.1] Good evening!",
    "She paid $12 at 5:30.",
    "The door was open.",
    "They moved to the city.",
    "Tell me a story. [pause 0.1]",
)
GAP_S = 0.3
SCRIPT = """
ANNA: Good morning. [pause 0.2] You slept well?
[pause 0.3]
BOB: [gain -3] I did. The bed is soft.
ANNA: [seed 7] Let us go.
"""


@dataclass(frozen=True)
class SpokenLine:
    """A line's report, its samples, and its codes if its way to speak returns them."""

    report: str
    samples: np.ndarray
    codes: torch.Tensor | None = None


# The ways to speak. Only these use the interfaces of the pack.

Way: TypeAlias = Callable[[Synthesizer, Sequence[Line], GenerateOptions], Iterator[SpokenLine]]


def speak_complete(synthesizer: Synthesizer, lines: Sequence[Line], options: GenerateOptions) -> Iterator[SpokenLine]:
    """Speak offline lines. They have no codes, but a line of other codes has other samples."""
    for one in render_lines(synthesizer, lines, options):
        yield SpokenLine(describe(one.report), one.waveform)


def speak_streams(synthesizer: Synthesizer, lines: Sequence[Line], options: GenerateOptions) -> Iterator[SpokenLine]:
    """Speak lines as concurrent streams."""
    with stream_lines(synthesizer, lines, options) as stream:
        chunks = list(stream)
        for index, one in enumerate(stream.spoken):
            yield join_chunks(one.report, [chunk for chunk in chunks if chunk.line == index])


class Tape:
    """A player that keeps what it plays."""

    has_listener = True

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate, self.parts = sample_rate, list[np.ndarray]()

    def begin(self, name: str, text: str) -> None:
        pass

    def play(self, samples: np.ndarray) -> None:
        self.parts.append(samples)

    def show_words(self, line: int, words: Sequence[WordTime]) -> None:
        pass


def speak_scene(synthesizer: Synthesizer, lines: Sequence[Line], options: GenerateOptions) -> Iterator[SpokenLine]:
    """Speak SCRIPT as one sound, with the voices of the first two lines."""
    request = ScriptRequest(SCRIPT, {"Anna": lines[0].voice, "Bob": lines[1].voice})
    parsed, own = read_script(SynthesizerChecks(synthesizer), request, options)
    with stream_lines(synthesizer, own, options, in_turn=True) as stream:
        chunks = list(stream)
    tape = Tape(synthesizer.model.sample_rate)
    player = ScenePlayer(parsed, GAP_S, tape, lambda _: ())
    listener = player.listen(Listener())
    for index, one in enumerate(stream.spoken):
        samples = np.concatenate([chunk.samples for chunk in chunks if chunk.line == index])
        listener.on_sound(index, samples)
        listener.on_line(index, one)
    scene = assemble(parsed, stream.spoken, GAP_S)
    player.finish(scene.lines)
    yield SpokenLine(scene.srt, np.concatenate(tape.parts))
    for one in scene.lines:
        yield SpokenLine(describe(one.report), one.waveform)


def speak_served(synthesizer: Synthesizer, lines: Sequence[Line], options: GenerateOptions) -> Iterator[SpokenLine]:
    """Speak each line for a caller of its own in a batch of ``options.batch_size`` rows, without keeping the sound."""
    with Batch(synthesizer, options.batch_size) as batch:
        with synthesizer.session():  # the lines that get a row begin together
            speeches = [batch.speak(line, options, Delivery(keep=False)) for line in lines]
        for speech in speeches:
            chunks = list(speech)
            yield join_chunks(speech.report, chunks)


def speak_late(synthesizer: Synthesizer, lines: Sequence[Line], options: GenerateOptions) -> Iterator[SpokenLine]:
    """Speak lines whose text comes word by word, as sentences and as tokens, in one batch."""
    for layout in ("sentence", "token"):
        late = [replace(line, text=words_of(line), layout=layout) for line in lines if line.voice.kind == "x_vector"]
        yield from speak_served(synthesizer, late, options)


WAYS: dict[str, Way] = {
    "complete": speak_complete,
    "streams": speak_streams,
    "scene": speak_scene,
    "served": speak_served,
    "late": speak_late,
}


def join_chunks(report: LineReport, chunks: Sequence[Chunk]) -> SpokenLine:
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return SpokenLine(describe(report), samples, torch.cat([chunk.codes for chunk in chunks]))


def describe(report: LineReport) -> str:
    """Return the part of a report that refactoring must not change."""
    return f"{report.ended}, {report.frames} frames, {report.pieces} pieces, {report.takes} takes: {report.spoken}"


def words_of(line: Line) -> Iterator[str]:
    """Yield a line's text word by word, like a language model."""
    return iter([f"{word} " for word in str(line.text).split()])


# The cases


@dataclass(frozen=True)
class Case:
    """Lines that are spoken in some ways.

    Args:
        name: in the recording.
        engine: "eager" or "graph".
        options: how.
        ways: keys of WAYS.
        lines: how many; TEXTS are repeated.
        checkpoint: DEMO, or the kind of a tiny random one.
        weights: as in ``LoadOptions``.
    """

    name: str
    engine: str
    options: GenerateOptions
    ways: tuple[str, ...] = ("streams",)
    lines: int = len(TEXTS)
    checkpoint: str = DEMO
    weights: str = "full"


GREEDY = Sampling(TokenSampling(do_sample=False), TokenSampling(do_sample=False))
FILTERED = Sampling(TokenSampling(top_k=20, top_p=0.8), TokenSampling(temperature=1.1, top_k=0, top_p=0.7), 1.3)
SHORT = Sampling(max_new_tokens=13)  # random weights do not end by themselves
TOGETHER = ("complete", "streams", "served")


def cases() -> list[Case]:
    return [case for engine in ("graph", "eager") for case in cases_of(engine)]


def cases_of(engine: str) -> list[Case]:
    five = GenerateOptions(5, split_chars=40)
    random = [Case(f"random {kind}", engine, GenerateOptions(5, SHORT), TOGETHER, 3, kind) for kind in KINDS]
    return [
        Case("S=5", engine, five, ("complete",), 8),
        Case("S=5 two rows", engine, replace(five, batch_size=2), (*TOGETHER, "scene"), 3),
        Case("S=5 one row", engine, replace(five, batch_size=1), ("late",), 3),
        Case("S=15", engine, replace(five, seq_groups=15), lines=3),
        Case("S=1", engine, replace(five, seq_groups=1), lines=3),
        Case("S=1 stock", engine, replace(five, seq_groups=1, tail="stock"), lines=2),
        Case("S=5 stock", engine, replace(five, tail="stock"), lines=2),
        Case("S=5 int8", engine, five, lines=2, weights="int8"),
        Case("S=5 greedy", engine, replace(five, sampling=GREEDY), lines=2),
        Case("S=5 filtered", engine, replace(five, sampling=FILTERED), lines=2),
        *random,
    ]


def lines_of(model: Model, count: int) -> list[Line]:
    """Return lines in all kinds of voice that a model has, one after the other."""
    voices = voices_of(model)
    return [
        Line(TEXTS[seed % len(TEXTS)], voices[seed % len(voices)], seed=seed, language="english")
        for seed in range(count)
    ]


def voices_of(model: Model) -> list[Voice]:
    """Return a voice of each kind that a model has."""
    if model.type == "voice_design":
        return [design_voice(model, "a calm old man")]
    voices = [preset_voice(model, name) for name in list(model.speakers)[:1]]
    if model.can_clone:
        example = read_recording(EXAMPLE)
        options = [CloneOptions("x_vector"), CloneOptions("icl", example.transcript)]
        voices += [clone_voice(model, example.waveform, example.sample_rate, one) for one in options]
    return voices


# The recording

Recording: TypeAlias = "dict[str, np.ndarray]"


def record(some: Sequence[Case]) -> Recording:
    """Speak all cases; return codes, samples and reports by the names of case, way and line."""
    made: Recording = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in some:
            synthesizer, began = load(case, Path(folder)), time.perf_counter()
            lines = lines_of(synthesizer.model, case.lines)
            for way in case.ways:
                for index, spoken in enumerate(WAYS[way](synthesizer, lines, case.options)):
                    made |= parts_of(f"{case.engine}, {case.name}, {way}, {index}", spoken)
            print(f"{case.engine}, {case.name}: {time.perf_counter() - began:.1f} s", flush=True)
    return made


def load(case: Case, folder: Path) -> Synthesizer:
    """Load a case's checkpoint in float32 on the CPU; a random one is written first."""
    path = demo_voice() if case.checkpoint == DEMO else folder / case.checkpoint
    if not path.is_dir():
        write_checkpoint(path, "tiny", case.checkpoint)
    return Synthesizer.load(path, LoadOptions("fp32", engine=case.engine, weights=case.weights))


def parts_of(name: str, spoken: SpokenLine) -> Recording:
    parts = {"report": np.array(spoken.report), "samples": spoken.samples}
    if spoken.codes is not None:
        parts["codes"] = spoken.codes.numpy().astype(np.int16)
    return {f"{name}, {part}": value for part, value in parts.items()}


def compare(before: Recording, after: Recording) -> list[str]:
    """Return what differs, a sentence for each part of a line."""
    names = [*before, *(name for name in after if name not in before)]
    return [f"{name}: {why}" for name in names if (why := differs(before.get(name), after.get(name)))]


def differs(before: np.ndarray | None, after: np.ndarray | None) -> str:
    """Return how a part of a line differs, "" if it does not."""
    if before is None or after is None:
        return "only in one of the recordings"
    if np.array_equal(before, after):
        return ""
    if before.dtype.kind == "U":
        return f"{before} was recorded, now it is {after}"
    if before.shape != after.shape:
        return f"{before.shape} was recorded, now it is {after.shape}"
    if before.dtype.kind != "f":
        return f"differs from index {np.argwhere(before != after)[0].tolist()} on"
    decibels = level_above(before, after)
    return "" if decibels >= NEAR_DB else f"differs by {-decibels:.0f} dB"


def main(arguments: Sequence[str] | None = None) -> None:
    """Record, or compare with a recording and raise SystemExit where something differs."""
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    does = command.add_mutually_exclusive_group(required=True)
    does.add_argument("--record", type=Path, metavar="FILE", help="write a recording (.npz)")
    does.add_argument("--compare", type=Path, metavar="FILE", help="compare with a recording, on the same machine")
    chosen = command.parse_args(arguments)
    made = record(cases())
    if chosen.record is not None:
        parts: Any = made  # numpy's types know its options only
        np.savez_compressed(chosen.record, **parts)
        print(f"{len(made)} parts of lines of {find_commit()} written to {chosen.record}")
        return
    with np.load(chosen.compare) as file:
        before = dict(file)
    if found := compare(before, made):
        raise SystemExit("\n".join([*found, f"{len(found)} of {len(before)} parts of lines differ"]))
    same = sum(np.array_equal(before[name], value) for name, value in made.items())
    print(f"all {len(before)} parts of lines are as recorded, {same} of them to the bit")


if __name__ == "__main__":
    main()
