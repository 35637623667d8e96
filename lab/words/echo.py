"""Table "echo": lines after references that end well or abruptly, with silence after the reference and without.

    python -m lab.words.echo FOLDER --device cpu
    python -m lab.words.echo FOLDER --lines 100 --ears 16

Presets say the references; each is cut as ``endings.py`` says, cloned with its transcript, and speaks one held-out line
with each length of silence, at the same seed, one take. whisper-base hears every line (CPU, int8): its wrong words,
words before the text's first one, and whether these are of the reference's end (echo). Resemblyzer compares the line
with the whole reference. FOLDER keeps lines and what was heard in them: the same command goes on where it was stopped.
A row is stored for each length and each ending as soon as it is there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import torch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.codec.upstream import decode_waveform
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.hearing.words import count_errors, normalize
from qwen3_tts_morph.morph.options import PRECISIONS, GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.echo import begins_elsewhere
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import build_piece, guard_line
from qwen3_tts_morph.morph.speech.takes import judge_end
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.postprocess.rates import resample

from ..benchmarks.origin import add_output
from ..benchmarks.results import PartRow, save_rows
from ..judges.clips import JUDGE_RATE
from ..judges.speaker import SpeakerEncoder, cosine
from ..judges.stats import mean
from .continuity import count_echoes
from .endings import ENDINGS, Recording, clone_ended, make_recordings, pad_clone
from .heard import Ear, join
from .lines import read_part, said
from .times import after_quiet

PADDINGS_MS = (0, 80, 240, 480)
SEED = 9000
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Told:
    """A spoken line.

    Args:
        text: as it was spoken.
        transcript: of the reference.
        codes: int64 ``[F, 16]``; ``reference``: those of the reference with its silence, int64 ``[R, 16]``.
        waveform: float32 ``[T]``.
        ended: one of ``takes.ENDS``, but for "echo".
        called: whether the alignment head calls it an echo.
    """

    text: str
    transcript: str
    codes: np.ndarray
    reference: np.ndarray
    waveform: np.ndarray
    ended: str
    called: bool

    def write(self, path: Path) -> None:
        """Keep the line in a file."""
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, **vars(self))
        unfinished.replace(path)

    @classmethod
    def read(cls, path: Path) -> Told:
        """Return a line that ``write`` kept."""
        with np.load(path) as kept:
            return cls(**{name: kept[name] if kept[name].ndim else kept[name].item() for name in kept.files})


@dataclass(frozen=True)
class Heard:
    """What was heard in a line.

    Args:
        errors, words: how many words were heard wrong, and how many the text has.
        before, after: how many words were heard before the text's first, and after its last.
        echo: whether these are the last words of the reference.
        similarity: to the whole reference, a cosine.
        onset_s: when its first sound begins.
    """

    errors: int
    words: int
    before: int
    after: int
    echo: bool
    similarity: float
    onset_s: float


@dataclass(frozen=True)
class EchoRow(PartRow):
    """The lines of one ending and one length of silence.

    Args:
        ending: one of ENDINGS.
        padding_ms: of silence after the reference.
        lines: how many were spoken.
        echoes: in which words of the reference were heard before the text; ``before``: in which any words were, and
            ``after``: after the text.
        called: which the alignment head calls echoes; ``found``: of ``before``; ``alarms``: of the others.
        wrong_words_percent: as the recogniser hears them.
        similarity: to the whole reference, the mean.
        onset_ms: of the first sound, the median.
        not_ended: lines that did not end by themselves.
    """

    seq_groups: int
    ending: str
    padding_ms: int
    lines: int
    echoes: int
    before: int
    after: int
    called: int
    found: int
    alarms: int
    wrong_words_percent: float
    similarity: float
    onset_ms: float
    not_ended: int


def words_around(text: str, heard: str) -> tuple[int, int]:
    """Return how many words were heard before the first words of a text, and after its last.

    Words of the text that were heard as others do not count.
    """
    wanted, given = (normalize(one, "english", text).split() for one in (text, heard))
    edits = SequenceMatcher(None, wanted, given, autojunk=False).get_opcodes()
    first, last = (
        0 if kind == "equal" else max(0, (end - begin) - (stop - start))
        for kind, start, stop, begin, end in (edits[0], edits[-1])
    )
    return first, last if len(edits) > 1 else 0


class Judge:
    """Hears and compares, on the CPU: as many lines at once as it has recognisers."""

    def __init__(self, ears: int):
        folder = Path(tempfile.gettempdir()) / "whisper-base"
        self.ears, self.speakers = [Ear(folder) for _ in range(ears)], SpeakerEncoder()

    def each(self, work: Callable[[Ear, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return what ``work`` makes of each item, each with a recogniser of its own."""
        free: SimpleQueue[Ear] = SimpleQueue()
        for ear in self.ears:
            free.put(ear)

        def run(item: Item) -> Result:
            ear = free.get()
            try:
                return work(ear, item)
            finally:
                free.put(ear)

        with ThreadPoolExecutor(len(self.ears)) as pool:
            return list(pool.map(run, items))

    def hear(self, waves: Sequence[np.ndarray], rate: int) -> list[str]:
        """Return what is heard in waveforms."""
        return self.each(lambda ear, wave: join(ear.hear(wave, rate)), waves)

    def embed(self, waves: Sequence[np.ndarray], rate: int) -> list[np.ndarray]:
        """Return the speaker of each waveform, ``[256]``."""
        return self.each(lambda _, wave: self.speakers.embed(resample(wave, rate, JUDGE_RATE)), waves)

    def judge(self, told: Sequence[tuple[Path, Told, np.ndarray]], rate: int) -> list[Heard]:
        """Return what is to be counted of lines: their files, what they are, and the speaker of the reference."""
        return self.each(lambda ear, one: self._judge(ear, one, rate), told)

    def _judge(self, ear: Ear, line: tuple[Path, Told, np.ndarray], rate: int) -> Heard:
        path, told, likeness = line
        kept = path.with_suffix(".json")
        if not kept.is_file():
            heard = join(ear.hear(told.waveform, rate))
            own = self.speakers.embed(resample(told.waveform, rate, JUDGE_RATE))
            kept.write_text(
                json.dumps({"heard": heard, "similarity": cosine(own, likeness)}), encoding="utf-8"
            )
        known = json.loads(kept.read_text(encoding="utf-8"))
        heard = known["heard"]
        errors, words = count_errors(told.text, heard, "english")
        [onset] = after_quiet([0.0], told.waveform, rate)
        is_echo = count_echoes([told.text], heard, told.transcript) > 0
        return Heard(errors, words, *words_around(told.text, heard), is_echo, known["similarity"], onset)


@dataclass(frozen=True)
class Bench:
    """What speaks and what hears.

    Args:
        synthesizer: the checkpoint.
        judge: hears.
        recordings: the references, one for each line.
        asked: the options of the command.
    """

    synthesizer: Synthesizer
    judge: Judge
    recordings: Sequence[Recording]
    asked: argparse.Namespace

    def speak(self, voices: Sequence[Voice]) -> list[tuple[Path, Told]]:
        """Return each voice's line, spoken or kept, and its file."""
        model, options = self.synthesizer.model, GenerateOptions(self.asked.seq_groups)
        texts = [said(text) for text in read_part("held_out")[: len(voices)]]
        lines = [
            Line(text, voice, "english", SEED + index)
            for index, (text, voice) in enumerate(zip(texts, voices, strict=True))
        ]
        files = [self.asked.folder / f"{self._key(line, options)}.npz" for line in lines]
        missing = [index for index, file in enumerate(files) if not file.is_file()]
        engine = self.synthesizer.engine
        with self.synthesizer.session(), torch.inference_mode():
            builder = engine.prompt_builder(model)
            prompts = {index: build_piece(builder, lines[index], texts[index]) for index in missing}
            requests = [
                LineRequest(prompt, guard_line(prompt, options, model.sampling), lines[index].seed)
                for index, prompt in prompts.items()
            ]
            made = engine.decode(model, requests, options) if requests else []
            for index, one in zip(missing, made, strict=True):
                voice = voices[index]
                wave = decode_waveform(model, one.codes, voice.ref_codes)
                ended = judge_end(texts[index], one, wave, model.sample_rate)
                assert voice.ref_codes is not None
                Told(
                    texts[index],
                    str(voice.transcript),
                    one.codes.numpy(),
                    voice.ref_codes.cpu().numpy(),
                    wave,
                    ended,
                    begins_elsewhere(one, wave),
                ).write(files[index])
        return [(file, Told.read(file)) for file in files]

    def _key(self, line: Line, options: GenerateOptions) -> str:
        model, codes = self.synthesizer.model, line.voice.ref_codes
        assert codes is not None
        said = (line.text, line.voice.transcript, codes.tolist(), line.seed, repr(options), str(model.device))
        return hashlib.sha256(repr((model.fingerprint, said)).encode()).hexdigest()[:20]

    def measure(self) -> Iterator[EchoRow]:
        """Measure each ending with each length of silence."""
        model, rate = self.synthesizer.model, self.synthesizer.model.sample_rate
        likenesses = self.judge.embed([one.waveform for one in self.recordings], rate)
        for ending in self.asked.endings:
            clones = clone_ended(model, lambda waves: self.judge.hear(waves, rate), self.recordings, ending)
            for padding in self.asked.paddings:
                told = self.speak([pad_clone(model, clone, padding) for clone in clones])
                files = [(*one, likeness) for one, likeness in zip(told, likenesses, strict=True)]
                yield self._row(ending, padding, [one for _, one in told], self.judge.judge(files, rate))

    def _row(self, ending: str, padding: int, told: Sequence[Told], judged: Sequence[Heard]) -> EchoRow:
        model = self.synthesizer.model
        precision = str(model.dtype).removeprefix("torch.")
        engine = self.synthesizer.engine.choose(model).engine
        setting = ("echo", "morph", model.name, engine, precision, len(told))
        return EchoRow(*setting, self.asked.seq_groups, ending, padding, **summarise(told, judged))


def summarise(told: Sequence[Told], judged: Sequence[Heard]) -> dict[str, Any]:
    """Return the figures of a row."""
    before = [one.before > 0 for one in judged]
    return {
        "lines": len(told),
        "echoes": sum(one.echo for one in judged),
        "before": sum(before),
        "after": sum(one.after > 0 for one in judged),
        "called": sum(one.called for one in told),
        "found": sum(one.called for one, is_before in zip(told, before, strict=True) if is_before),
        "alarms": sum(one.called for one, is_before in zip(told, before, strict=True) if not is_before),
        "wrong_words_percent": round(
            100 * sum(one.errors for one in judged) / sum(one.words for one in judged), 2
        ),
        "similarity": round(mean([one.similarity for one in judged]).value, 4),
        "onset_ms": round(1000 * float(np.median([one.onset_s for one in judged]))),
        "not_ended": sum(one.ended != "eos" for one in told),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.words.echo", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path, help="keeps lines and what was heard; it is created")
    parser.add_argument("--checkpoint", type=Path, help="its folder; none: the demo voice")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="auto")
    parser.add_argument("--endings", nargs="+", choices=ENDINGS, default=ENDINGS)
    parser.add_argument("--paddings", nargs="+", type=int, default=PADDINGS_MS, help="ms of silence")
    parser.add_argument("--lines", type=int, default=60, help="of each row, 100 at most")
    parser.add_argument("--seq-groups", type=int, default=15)
    parser.add_argument("--ears", type=int, default=1, help="recognisers at once, a thread each")
    add_output(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Speak, hear, compare, print and store the rows."""
    asked = parse(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    path = asked.checkpoint or demo_voice()
    synthesizer = Synthesizer(load_model(path, LoadOptions(asked.precision), torch.device(asked.device)))
    bench = Bench(synthesizer, Judge(asked.ears), make_recordings(synthesizer, asked.lines), asked)
    rows = list[EchoRow]()
    for row in bench.measure():
        rows.append(row)
        print({name: value for name, value in row.flat().items() if value is not None}, flush=True)
        save_rows(rows, synthesizer.model.device, asked)


if __name__ == "__main__":
    main()
