"""Wrong words of the demo voice in 200 lines, before and after the word check, and what the retakes cost.

    pip install -r lab/benchmarks/word_check/requirements.txt
    python -m lab.benchmarks.word_check FOLDER --keep                                  # the node's defaults
    python -m lab.benchmarks.word_check FOLDER --most-errors 20 --retakes 2 --keep     # another setting

The four speakers say ``lines.txt`` in rotation, with all settings at their defaults. whisper base checks, as the node's
default does; whisper tiny.en and pocketsphinx hear the first takes and those that were kept, and choose nothing. FOLDER
keeps every take and what was heard in it: the same command goes on where it was stopped, and another setting makes only
the takes that are not there yet. Work is counted in frames: those of all takes, divided by those of the first ones.
With ``--keep`` the row of every line goes to ``lab/benchmarks/results/word_check.json``.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.hearing.words import count_errors
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.once import Listener, Once, speak_lines
from qwen3_tts_morph.morph.kept.word_check import Recogniser, RememberedEar, WordCheck
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from ..everyday.__main__ import SPEAKERS
from ..results import FOLDER, installed_versions, machine_name
from .recognisers import CHECKER, OTHERS, versions, whisper_base

TEXTS = Path(__file__).with_name("lines.txt")
RESULTS = FOLDER / "word_check.json"
MOST_BYTES = 8 << 30  # of kept takes


@dataclass(frozen=True)
class Setting:
    """The word check's: wrong words per word that pass, and how many other takes there may be."""

    most_errors: float
    retakes: int


@dataclass(frozen=True)
class Row:
    """One line at one setting.

    Args:
        frames: of its first take, and of all takes that were made.
        before, after: wrong words by the recogniser's name, in the first take and in the kept one.
        heard: the kept take's words by the recogniser's name, where one is wrong.
    """

    most_errors: float
    retakes: int
    text: str
    voice: str
    seed: int
    words: int
    takes: int
    frames: tuple[int, int]
    before: Mapping[str, int]
    after: Mapping[str, int]
    heard: Mapping[str, str]


@dataclass(frozen=True)
class Bench:
    """What speaks, what checks and what else hears."""

    speak: Callable[[Sequence[Line]], list[Spoken]]
    lines: Sequence[Line]
    checker: Recogniser
    others: Mapping[str, Recogniser]

    def measure(self, setting: Setting) -> list[Row]:
        """Speak the lines, check them with a setting, and hear both takes with every recogniser."""
        first = self.speak(self.lines)
        frames = {line.text: [one.report.frames] for line, one in zip(self.lines, first, strict=True)}

        def again(asked: Sequence[Line]) -> list[Spoken]:
            made = self.speak(asked)
            for line, one in zip(asked, made, strict=True):
                frames[line.text].append(one.report.frames)
            return made

        check = WordCheck(self.checker, setting.most_errors, setting.retakes)
        kept = check.apply(self.lines, first, again, say)
        rows = []
        for line, one, other in zip(self.lines, first, kept, strict=True):
            say(f"judging {line.text}")
            rows.append(self._row(setting, line, (one, other), frames[line.text]))
        return rows

    def _row(self, setting: Setting, line: Line, takes: tuple[Spoken, Spoken], frames: list[int]) -> Row:
        before, after, heard, words = {}, {}, {}, 0
        for name, ear in {CHECKER: self.checker, **self.others}.items():
            language = line.language if name == CHECKER else "english"
            texts = [ear.hear(one.waveform, one.sample_rate, language) for one in takes]
            asked = takes[0].report.spoken or takes[0].report.text
            (before[name], words), (after[name], _) = (count_errors(asked, text, language) for text in texts)
            if after[name]:
                heard[name] = texts[1]
        counts = (words, len(frames), (frames[0], sum(frames)))
        return Row(
            setting.most_errors,
            setting.retakes,
            str(line.text),
            line.voice.name,
            line.seed,
            *counts,
            before,
            after,
            heard,
        )


def say(words: str) -> None:
    """Print a phase over the one before."""
    print(f"\r{words[:100]:100}", end="", flush=True)


@contextmanager
def prepare(folder: Path, count: int) -> Iterator[Bench]:
    """Load the demo voice and the recognisers; ``folder`` keeps takes and words."""
    synthesizer = Synthesizer.load(demo_voice(), LoadOptions(), torch.device("cpu"))
    cache = LineCache(folder, MOST_BYTES)
    texts = TEXTS.read_text(encoding="utf-8").splitlines()[:count]
    lines = [
        Line(text, preset_voice(synthesizer.model, SPEAKERS[index % len(SPEAKERS)]), seed=index)
        for index, text in enumerate(texts)
    ]
    others = {name: RememberedEar(load(), cache) for name, load in OTHERS.items()}
    options = GenerateOptions()
    with Batch(synthesizer, rows=options.batch_size) as batch:

        def speak(asked: Sequence[Line]) -> list[Spoken]:
            return speak_lines(batch, asked, options, Once(cache), Listener(on_phase=say))

        yield Bench(speak, lines, RememberedEar(whisper_base(), cache), others)


def wrong(rows: Sequence[Row], name: str, kept: bool) -> float:
    """Return the wrong words in percent that a recogniser heard in the first takes, or in the kept ones."""
    return (
        100 * sum((row.after if kept else row.before)[name] for row in rows) / sum(row.words for row in rows)
    )


def work(rows: Sequence[Row]) -> float:
    """Return the frames of all takes for each frame of the first ones."""
    return sum(row.frames[1] for row in rows) / sum(row.frames[0] for row in rows)


def table(rows: Sequence[Row]) -> str:
    """Format a line for each setting: wrong words in percent before and after by each recogniser, and the work."""
    names = list(rows[0].before)
    titles = [
        "`most_errors` %",
        "`retakes`",
        "lines made again",
        "work",
        *(f"{name}, before and after" for name in names),
    ]
    lines = [f"| {' | '.join(titles)} |", "|" + "--:|" * len(titles)]
    for setting in dict.fromkeys(Setting(row.most_errors, row.retakes) for row in rows):
        own = [row for row in rows if Setting(row.most_errors, row.retakes) == setting]
        cells = [f"{100 * setting.most_errors:.0f}", str(setting.retakes)]
        cells += [str(sum(row.takes > 1 for row in own)), f"{work(own):.2f}"]
        cells += [f"{wrong(own, name, False):.2f} and {wrong(own, name, True):.2f}" for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def save(rows: Sequence[Row], path: Path = RESULTS) -> None:
    """Write the rows; they replace those of the same settings."""
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    measured = {(row.most_errors, row.retakes) for row in rows}
    document = {
        "command": "python -m lab.benchmarks.word_check FOLDER --most-errors PERCENT --retakes N --keep",
        "machine": machine_name(torch.device("cpu")),
        "date": datetime.date.today().isoformat(),
        "versions": {**installed_versions(), **versions()},
        "rows": [row for row in before if (row["most_errors"], row["retakes"]) not in measured]
        + [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Speak, check, judge, and print the table and what is still wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="keeps takes and words; it is created")
    parser.add_argument(
        "--most-errors",
        type=float,
        default=100 * WordCheck.most_errors,
        help="percent of a line's words that pass",
    )
    parser.add_argument("--retakes", type=int, default=WordCheck.retakes)
    parser.add_argument("--count", type=int, help="only the first lines")
    parser.add_argument("--keep", action="store_true", help="write the rows to the results file")
    asked = parser.parse_args()
    with prepare(asked.folder, asked.count) as bench:
        rows = bench.measure(Setting(asked.most_errors / 100, asked.retakes))
    say("")
    for row in rows:
        if row.after[CHECKER]:
            print(f"\n{row.text!r} ({row.voice}, {row.takes} takes): {dict(row.heard)}", end="")
    print(f"\n{table(rows)}")
    if asked.keep:
        save(rows)


if __name__ == "__main__":
    main()
