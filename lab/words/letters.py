"""Make a checkpoint's table of letters (``morph/words/guard.py``) from lines that it speaks itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from qwen3_tts_morph.morph.checkpoint.files import write_tensors
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.morph.words.alignment import Trace, token_path
from qwen3_tts_morph.morph.words.guard import BESIDE, EDGE, LETTERS, PAUSE, LetterTable, path_scores, spell

from pack import ROOT

from ..benchmarks.quality.lines import read_texts
from .forced import VOICES
from .lines import normalized
from .record import Head, PlannedLine, TracedLine, record

TEXTS = "lab/words/letters.txt"
TURNS, SEED, OPTIONS = 2, 60000, GenerateOptions(seq_groups=5)
ROUNDS, EPOCHS, BATCH, RATE, FALL, DECAY = 3, 12, 512, 0.02, 0.75, 0.3
STEPS = (0.25, 0.35, 0.2, 0.1, 0.06, 0.04)  # at first
SIDES = range(-BESIDE, BESIDE + 1)

log = logging.getLogger("lab.words")


@dataclass(eq=False)
class Example:
    """A line: its codes of group 0, the letters and their tokens, its trace, and the place of each frame."""

    codes: np.ndarray
    letters: np.ndarray
    tokens: np.ndarray
    trace: Trace
    places: np.ndarray


def speak_examples(
    model: Model, voices: Sequence[Voice], head: Head, folder: Path, count: int | None
) -> Iterator[Example]:
    """Yield examples of TEXTS in the voices of development; ``count``: of the first texts only."""
    own = [voices[place % len(voices)] for place in VOICES["development"]]
    texts = [normalized(text) for text in read_texts(ROOT / TEXTS)[:count]]
    asked = [
        PlannedLine(text, own[(index + turn) % len(own)], SEED + 10000 * turn + index, OPTIONS)
        for turn in range(TURNS)
        for index, text in enumerate(texts)
    ]
    for [path] in record(model, [[one] for one in asked], head, folder, with_sound=False):
        line = TracedLine.read(path)
        spans = model.texts.spans(line.text)
        letters, tokens = spell(line.text, spans)
        if line.ended == "eos" and len(letters):
            tokens_seen, weights, mass = line.trace
            trace = Trace(tokens_seen, weights, mass)
            places = first_places(token_path(trace, len(spans)), tokens)
            yield Example(line.codes[:, 0], letters, tokens, trace, places)


def first_places(path: Sequence[int], tokens: np.ndarray) -> np.ndarray:
    """Return a letter for each frame: those of a token share its frames."""
    begins = [frame for frame in range(len(path)) if frame == 0 or path[frame] != path[frame - 1]]
    at = np.searchsorted(tokens, [path[frame] for frame in begins])
    known = [*at, len(tokens)]
    return np.interp(np.arange(len(path)) + 0.5, [*begins, len(path)], known).astype(int).clip(0, len(tokens) - 1)


def fit(examples: Sequence[Example], codes: int) -> LetterTable:
    """Return the table of ``codes`` codes: fitted to the places, which then follow the table, ROUNDS times."""
    steps = np.log(STEPS)
    for turn in range(ROUNDS):
        weights, prior = _fit_weights(examples, codes)
        table = LetterTable(weights, prior, (np.log(_shares(examples)) if turn else steps).astype(np.float32))
        moved = 0.0
        for one in examples:
            places = _best_path(table.worth(one.codes, one.letters, one.tokens, one.trace), table.steps)
            moved += float(np.abs(places - one.places).mean()) / len(examples)
            one.places = places
        log.info("round %d: places moved by %.2f letters", turn + 1, moved)
    return table


def _best_path(gains: np.ndarray, steps: np.ndarray) -> np.ndarray:
    scores = path_scores(gains, steps)
    path = [max(0, len(scores[0]) - EDGE) + int(scores[-1, -EDGE:].argmax())]
    for before in scores[-2::-1]:
        wide = min(len(steps), path[-1] + 1)
        path.append(path[-1] - int((before[path[-1] - np.arange(wide)] + steps[:wide]).argmax()))
    return np.array(path[::-1])


def _shares(examples: Sequence[Example]) -> np.ndarray:
    wide = np.concatenate([np.diff(one.places) for one in examples]).clip(0, len(STEPS) - 1)
    counts = np.bincount(wide, minlength=len(STEPS)) + 1
    return counts / counts.sum()


def _fit_weights(examples: Sequence[Example], codes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``weights`` and ``prior`` of a table, by a linear classifier."""
    torch.manual_seed(0)
    given = torch.from_numpy(np.concatenate([_windows(one.codes, codes) for one in examples]))
    wanted = torch.from_numpy(np.concatenate([_windows(one.letters, PAUSE)[one.places] for one in examples]))
    layer = torch.nn.Embedding((codes + 1) * len(SIDES), len(SIDES) * LETTERS)
    torch.nn.init.zeros_(layer.weight)
    bias = torch.nn.Parameter(torch.zeros(len(SIDES) * LETTERS))
    optimizer = torch.optim.AdamW([*layer.parameters(), bias], lr=RATE, weight_decay=DECAY)
    falls = torch.optim.lr_scheduler.ExponentialLR(optimizer, FALL)
    places = torch.arange(len(SIDES)) * (codes + 1)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(given)).split(BATCH):
            logits = (layer(given[rows] + places).sum(1) + bias).view(-1, LETTERS)
            loss = torch.nn.functional.cross_entropy(logits, wanted[rows].view(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        falls.step()
    weights = layer.weight.detach().view(len(SIDES), codes + 1, len(SIDES), LETTERS).clone()
    weights[BESIDE] += bias.detach().view(len(SIDES), LETTERS)
    counts = torch.stack([torch.bincount(side, minlength=LETTERS) + 1.0 for side in wanted.T])
    return weights.numpy(), (counts / counts.sum(1, keepdim=True)).log().numpy()


def _windows(values: np.ndarray, beyond: int) -> np.ndarray:
    padded = np.pad(values, BESIDE, constant_values=beyond)
    return np.lib.stride_tricks.sliding_window_view(padded, len(SIDES)).copy()


def write_table(path: Path, table: LetterTable) -> None:
    """Write a table to a file of a checkpoint's folder."""
    tensors = {name: torch.from_numpy(values) for name, values in vars(table).items()}
    write_tensors(path, {**tensors, "weights": tensors["weights"].half()}, {"format": "qwen3-tts-letters"})
