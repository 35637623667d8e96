"""Compare the alignment head's word times and word faults with a recogniser's.

    python -m lab.words times FOLDER                            # held-out lines and paragraphs, presets and clones
    python -m lab.words guard FOLDER                            # the same, and lines with faults
    python -m lab.words guard FOLDER --lines stock1 hot --part development
    python -m lab.words guard FOLDER --lines forced             # 204 forced faults and 500 unchanged lines
    python -m lab.words letters FOLDER                          # the demo voice's table of letters, from 2,210 lines

The demo voice speaks on the CPU, whisper-base transcribes (``lab.judges.asr``). FOLDER keeps every line and its
transcript: the same command continues an interrupted run. Rows go to ``lab/benchmarks/results`` (tables
``word_times`` and ``word_faults``).
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.trained_files import LETTER_FILE
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import parse_groups
from qwen3_tts_morph.morph.voice.voice import Voice

from ..benchmarks.origin import add_output
from ..benchmarks.results import PartRow, save_rows
from .faults import FaultsRow, JudgedLine, find_faults, judge, summarise_faults
from .forced import FORCED, UNCHANGED, forced_lines, spoken_lines, unchanged_lines
from .letters import fit, speak_examples, write_table
from .lines import CLONES, GOOD, PARTS, WRONG, good_lines, read_voices, wrong_lines
from .record import Head, PlannedLine, TracedLine, record
from .times import TimesRow, summarise_times, time_errors
from .transcribed import TranscribedWord, WhisperTranscriber, WordRecogniser, transcribe_line

HEAD = Head(1, 0)  # of the demo voice
ALL = (*GOOD, *WRONG)


@dataclass(frozen=True)
class WordStudy:
    """The model, the recogniser and the lines of a study.

    Args:
        model: the checkpoint.
        transcriber: the recogniser.
        voices: used in rotation.
        folder: of the lines.
        asked: the options of the command.
    """

    model: Model
    transcriber: WordRecogniser
    voices: Sequence[Voice]
    folder: Path
    asked: argparse.Namespace

    def times(self) -> list[TimesRow]:
        """Measure the starts of words."""
        names = [name for name in GOOD if name in self.asked.lines]
        return [row for name in names for groups in self.asked.seq_groups for row in self._times(name, groups)]

    def _times(self, name: str, groups: int) -> list[TimesRow]:
        lines = good_lines(self.asked.part, name, groups, self.asked.count, self.voices)
        names = {"preset": "presets", "x_vector": "clones", "icl": "icl clones"}
        kinds = [names[line[0].voice.kind] for line in lines]
        spoken = self.speak(lines)
        errors = [time_errors(pieces, words, self.model.texts.backend) for pieces, words in spoken]
        return [
            TimesRow(
                *self._part("word_times", name),
                kind,
                groups,
                **summarise_times([one for one, own in zip(errors, kinds, strict=True) if own == kind]),
            )
            for kind in dict.fromkeys(kinds)
        ]

    def faults(self) -> list[FaultsRow]:
        """Measure the detection of word faults."""
        return [row for name in self.asked.lines for row in self._faults(name)]

    def _faults(self, name: str) -> list[FaultsRow]:
        voices, part, count = self.voices, self.asked.part, self.asked.count
        if name == FORCED:
            return self._forced()
        if name in GOOD:
            sets = [good_lines(part, name, groups, count, voices) for groups in self.asked.seq_groups]
        else:
            sets = [wrong_lines(self.model, part, name, count, voices)]
        rows = []
        for lines in sets:
            judged = [judge(*one, self.model) for one in self.speak(lines)]
            groups = lines[0][0].options.seq_groups
            rows.append(FaultsRow(*self._part("word_faults", name), groups, **summarise_faults(judged)))
        return rows

    def _forced(self) -> list[FaultsRow]:
        """Measure fault detection on lines with a known fault, and on unchanged ones, without a recogniser."""
        part, count = self.asked.part, self.asked.count
        lines = [*forced_lines(part, self.voices, count), *unchanged_lines(part, self.voices, count)]
        judged: dict[tuple[str, int], list[JudgedLine]] = defaultdict(list)
        for kind, line in spoken_lines(self.model, lines, HEAD, self.folder):
            outcome = "right" if kind == UNCHANGED else "broken"
            faults = tuple(find_faults(line, self.model))
            judged[kind, line.seq_groups].append(JudgedLine(outcome, faults))
        return [
            FaultsRow(*self._part("word_faults", kind), groups, **summarise_faults(own))
            for (kind, groups), own in sorted(judged.items())
        ]

    def speak(self, lines: Sequence[Sequence[PlannedLine]]) -> list[tuple[list[TracedLine], list[TranscribedWord]]]:
        """Return the pieces of lines, and the transcribed words of each."""
        spoken = []
        for paths in record(self.model, lines, HEAD, self.folder):
            pieces = [TracedLine.read(path) for path in paths]
            waves = [piece.waveform for piece in pieces]
            spoken.append((pieces, transcribe_line(self.transcriber, paths, waves, self.model.sample_rate)))
        return spoken

    def _part(self, table: str, name: str) -> tuple[str, str, str, str, str, int, str]:
        precision = str(self.model.dtype).removeprefix("torch.")
        return table, "morph", self.model.name, "eager", precision, 1, f"{self.asked.part} {name}"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.words", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measure", choices=("times", "guard", "letters"))
    parser.add_argument("folder", type=Path, help="keeps lines and their transcripts; it is created")
    parser.add_argument("--part", choices=PARTS, default="held_out")
    parser.add_argument("--lines", nargs="+", choices=(*ALL, FORCED), default=ALL, help="times: of good ones only")
    parser.add_argument("--seq-groups", type=parse_groups, default=[5, 15], help="of good lines, as 5,15")
    parser.add_argument("--clones", choices=CLONES, default=CLONES[0], help="how the recordings are cloned")
    parser.add_argument("--count", type=int, help="only the first lines of each kind")
    add_output(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = parse(arguments)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("lab.words").setLevel(logging.INFO)
    torch.set_num_threads(1)
    model = load_model(demo_voice())
    if asked.measure == "letters":
        examples = list(speak_examples(model, read_voices(model), HEAD, asked.folder, asked.count))
        table = fit(examples, model.codec.config.decoder_config.codebook_size)
        return write_table(asked.folder / LETTER_FILE, table)
    transcriber = WhisperTranscriber(Path(tempfile.gettempdir()) / "whisper-base")
    bench = WordStudy(model, transcriber, read_voices(model, asked.clones), asked.folder, asked)
    rows: Sequence[PartRow] = bench.times() if asked.measure == "times" else bench.faults()
    for row in rows:
        print({name: value for name, value in row.flat().items() if value is not None})
    save_rows(rows, torch.device("cpu"), asked)


if __name__ == "__main__":
    main()
