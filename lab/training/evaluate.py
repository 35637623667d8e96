"""Speak the corpus's held-out lines in cloned voices with a checkpoint, for the judges.

    python -m lab.training.evaluate --checkpoint demo_voice --corpus artifacts/corpus --out artifacts/spoken
    python -m lab.judges --wavs artifacts/spoken/wavs --texts artifacts/spoken/texts.tsv \
        --references artifacts/spoken/references

Every held-out voice is cloned from two of its references, by x-vector or (``--mode icl``) with their transcripts; the
judges compare it with the other two.
To choose sampling without using the test's sentences: ``--texts references --temperatures 0.6 0.9``.
Needs the unpacked teacher bundle (for the plan) and the spoken references under the corpus's root.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from qwen3_tts_morph.morph.batch.stream import render_lines
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.morph.voice.create import MODES, CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from .corpus.bundle import read_bundle
from .corpus.plan import Task, plan
from .corpus.shards import Corpus, Utterance
from .storage import write_wav

SAMPLE_RATE = 24000
CLONED_FROM = 2  # references that a voice is cloned from; the others are for the judges
PRESETS = "test_presets"  # the split whose voices are the checkpoint's own
REFERENCES = {
    "test": "references",
    "test_originals": "references_originals",
    PRESETS: "references_presets",
    "test_figures": "references",
    "test_paragraphs": "references",
}

log = logging.getLogger("lab.training.evaluate")


@dataclass(frozen=True)
class EvaluateOptions:
    """What to speak.

    Args:
        corpus: root of the corpus.
        out: output folder.
        split: one of REFERENCES, which names the voices.
        texts: the split whose sentences they speak: ``split`` itself (None), or its references.
        limit: only the first lines (0: all).
        normalize: write figures and capitals out before the voice gets them.
        temperatures: of talker and predictor; None: the checkpoint's own.
        mode: how voices are cloned, one of ``MODES``; presets are not.
    """

    corpus: Path
    out: Path
    split: str = "test"
    texts: str | None = None
    temperatures: tuple[float, float] | None = None
    seq_groups: int = 15
    seed: int = 0
    limit: int = 0
    batch_size: int = 8
    normalize: bool = False
    mode: str = CloneOptions.mode

    def __post_init__(self) -> None:
        if self.split not in REFERENCES:
            raise ValueError(f"split {self.split!r} is unknown: choose one of {', '.join(REFERENCES)}")
        if self.texts not in (None, self.split, REFERENCES[self.split]):
            raise ValueError(
                f"texts {self.texts!r} has other voices: choose {self.split} or {REFERENCES[self.split]}"
            )
        if self.split == PRESETS and self.mode != CloneOptions.mode:
            raise ValueError(f"mode {self.mode!r}: the voices of {PRESETS} are not cloned, leave it out")


def read_references(options: EvaluateOptions) -> dict[str, list[Utterance]]:
    """Return each voice's reference lines, spoken by the teacher."""
    corpus = Corpus(options.corpus / "shards", REFERENCES[options.split])
    voices: dict[str, list[Utterance]] = {}
    for index in range(len(corpus)):
        line = corpus[index]
        voices.setdefault(line.speaker, []).append(line)
    return voices


def clone_all(model: Model, references: dict[str, list[Utterance]], mode: str) -> dict[str, Voice]:
    """Clone each voice from its first references, concatenated."""
    voices = {}
    for name, lines in references.items():
        audio = np.concatenate([line.audio for line in lines[:CLONED_FROM]]).astype(np.float32) / 32768
        said = " ".join(line.text for line in lines[:CLONED_FROM]) if mode == "icl" else None
        voices[name] = clone_voice(model, audio, SAMPLE_RATE, CloneOptions(mode, said, name=name))
    return voices


def planned(options: EvaluateOptions) -> list[Task]:
    """Return the split's lines with their voices."""
    bundle = read_bundle(options.corpus / "teacher")
    return plan(options.texts or options.split, bundle.lines, bundle.cast, 0)[: options.limit or None]


def sampling_of(model: Model, options: EvaluateOptions) -> Sampling:
    """Return the checkpoint's sampling, with the requested temperatures."""
    own = model.sampling
    if options.temperatures is None:
        return own
    talker, subtalker = (
        dataclasses.replace(draw, temperature=temperature)
        for draw, temperature in zip((own.talker, own.subtalker), options.temperatures, strict=True)
    )
    return dataclasses.replace(own, talker=talker, subtalker=subtalker)


def evaluate(
    model: Model, options: EvaluateOptions, presets: dict[str, str] | None = None
) -> dict[str, object]:
    """Speak, write ``wavs/``, ``references/``, ``texts.tsv`` and ``endings.json``; return the content of the latter.

    Args:
        model: the checkpoint.
        options: what to speak.
        presets: corpus voice -> preset speaker, to speak with presets instead of clones.
    """
    references = read_references(options)
    if presets:
        voices = {name: preset_voice(model, presets[name]) for name in references}
    else:
        voices = clone_all(model, references, options.mode)
    tasks = planned(options)
    lines = [
        Line(task.line.text, voices[task.voice.name], "english", options.seed + index)
        for index, task in enumerate(tasks)
    ]
    sampling = sampling_of(model, options)
    # Every line once, and as written if not asked otherwise: retries would hide the checkpoint's own behaviour.
    normalize = "auto" if options.normalize else "off"
    settings = GenerateOptions(
        options.seq_groups, sampling, options.batch_size, retries=0, normalize=normalize
    )
    started = time.monotonic()
    spoken = render_lines(Synthesizer(model), lines, settings, None)
    elapsed = time.monotonic() - started
    write(options.out, tasks, spoken, references)
    seconds = sum(one.report.seconds for one in spoken)
    about = {
        "seq_groups": options.seq_groups,
        "split": options.split,
        "texts": options.texts or options.split,
        "temperatures": [sampling.talker.temperature, sampling.subtalker.temperature],
        "lines": len(spoken),
        "ended": dict(Counter(one.report.ended for one in spoken)),
        "seconds": round(seconds, 2),
        "rtf": round(elapsed / seconds, 4),
        "batch_size": options.batch_size,
        "normalize": options.normalize,
        "mode": options.mode,
    }
    (options.out / "endings.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    return about


def spellings(text: str, normalizer: Normalizer) -> list[str]:
    """Return a text as it is and, where that differs, with figures in words: a recogniser may write either."""
    spoken = normalizer.write_out(text).text
    # The normalizer writes letters as they are said.
    heard = spoken.replace("ay em", "a.m.").replace("pee em", "p.m.")
    return list(dict.fromkeys((text, spoken, heard)))


def write(out: Path, tasks: list[Task], spoken: list[Spoken], references: dict[str, list[Utterance]]) -> None:
    """Write the judges' input; a recogniser may write figures as they are or in words."""
    rows, normalizer = [], Normalizer("en")
    for index, (task, one) in enumerate(zip(tasks, spoken, strict=True)):
        path = f"{task.voice.name}/{index:04}.wav"
        write_wav(out / "wavs" / path, one.waveform, SAMPLE_RATE)
        rows.append("\t".join((path, *spellings(task.line.text, normalizer))))
    (out / "texts.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for name, lines in references.items():
        for index, line in enumerate(lines[CLONED_FROM:]):
            write_wav(out / "references" / name / f"{index}.wav", line.audio, SAMPLE_RATE)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.evaluate", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, default=Path("artifacts/corpus"), help="root of the corpus")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", default="test", help=", ".join(REFERENCES))
    parser.add_argument("--texts", help="which sentences: the split's own or those of its references")
    parser.add_argument("--temperatures", type=float, nargs=2, metavar=("TALKER", "PREDICTOR"))
    parser.add_argument("--seq-groups", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, help="number of lines (0: all)")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--normalize", action="store_true", help="write figures and capitals out first")
    parser.add_argument("--mode", choices=MODES, default=EvaluateOptions.mode, help="how voices are cloned")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    options = EvaluateOptions(
        corpus=given.corpus,
        out=given.out,
        split=given.split,
        texts=given.texts,
        temperatures=tuple(given.temperatures) if given.temperatures else None,
        seq_groups=given.seq_groups,
        seed=given.seed,
        limit=given.limit,
        batch_size=given.batch_size,
        normalize=given.normalize,
        mode=given.mode,
    )
    presets = None
    if given.split == PRESETS:
        from .talker.config import load_config

        presets = {voice: name for name, voice in load_config().presets.items()}
    model = load_model(given.checkpoint, device=given.device)
    log.info("%s", json.dumps(evaluate(model, options, presets)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
