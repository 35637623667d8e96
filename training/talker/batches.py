"""Draw lines, lay them out and batch them by length; runs in worker processes on the CPU, with numpy alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .codes import UNKNOWN_PHONE, Codes
from .config import GROUPS, Mix
from .layout import NOTHING, Ids, Layout, lay_out, length_of
from .tokenizer import TextTokens

POOL = 2048  # lines drawn at once, sorted by length and cut into batches
ROUND = 16  # batches' lengths are multiples of this: few shapes
MOST_JOINED = 3


class Batch(NamedTuple):
    """B lines of T positions; integer tensors, -1 where there is nothing.

    ``text`` [B, T]; ``codes`` [B, T, 16] (noised), ``targets`` [B, T, 16] (clean; EOS in group 0 alone) and ``phones``
    [B, T, 2] of the frame that a position predicts; ``speaker_at``, ``speaker`` [B]; ``mel_rows`` [B, M] rows of
    ``Codes.mels``; ``picked`` [K] flat positions whose frames the predictor learns.
    """

    text: torch.Tensor
    codes: torch.Tensor
    targets: torch.Tensor
    phones: torch.Tensor
    speaker_at: torch.Tensor
    speaker: torch.Tensor
    mel_rows: torch.Tensor
    picked: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device, as int64."""
        return Batch(*(item.to(device, non_blocking=True).long() for item in self))


@dataclass(frozen=True)
class Line:
    """What one line is made of: utterances of one voice (``rows``), those of its reference, and the layout."""

    rows: tuple[int, ...]
    reference: tuple[int, ...]
    whole: bool
    tag: bool
    length: int


class Corpus:
    """Codes with the texts' tokens, ready to draw from."""

    def __init__(self, codes: Codes, tokens: TextTokens, ids: Ids, mix: Mix):
        self.codes, self.ids, self.mix = codes, ids, mix
        self.frames = codes.frames()
        plain = tokens.encode(codes.texts)
        drawn = (tokens.respell(codes.texts, mix.bpe_dropout, seed) for seed in range(1, mix.tokenizations))
        self.tokens = [plain, *drawn]
        # Behind another sentence a text begins with a space, which makes other tokens of its first word.
        self.later = tokens.encode([f" {text}" for text in codes.texts])

    def draw_line(self, rng: np.random.Generator, row: int, peers: np.ndarray) -> Line | None:
        """A line that starts with utterance ``row``; ``peers`` are its voice's. None when it would be too long."""
        mix = self.mix
        rows = [row]
        if rng.random() < mix.join:
            rows += rng.choice(peers, size=rng.integers(1, MOST_JOINED)).tolist()
        reference = [another(rng, peers, row)] if rng.random() < mix.icl else []
        frames = sum(self.frames[rows])
        if frames + sum(self.frames[reference]) > mix.longest_frames:
            rows, reference, frames = [row], [], self.frames[row]
        if frames > mix.longest_frames:
            return None
        whole, tag = rng.random() < mix.whole_text, rng.random() < mix.language_tag
        tokens = sum(len(self.later[one]) for one in (*reference, *rows))  # within a few: it only sorts
        length = length_of(tokens, sum(self.frames[reference]), frames, whole, tag)
        return Line(tuple(rows), tuple(reference), whole, tag, length)

    def text_of(self, rng: np.random.Generator, rows: Sequence[int], plain: bool) -> list[int]:
        """Tokens of sentences with spaces between; half of the first ones are spelled with merges left out."""
        spelling = 0 if plain or rng.random() < 0.5 else int(rng.integers(len(self.tokens)))
        text = list(self.tokens[spelling][rows[0]]) if rows else []
        for row in rows[1:]:
            text += self.later[row]
        return text

    def codes_of(self, rows: Sequence[int]) -> np.ndarray:
        """int16 ``[F, 16]``."""
        return np.concatenate([self.codes.utterance_codes(row) for row in rows])

    def lay_out(self, rng: np.random.Generator, line: Line, plain: bool) -> Layout:
        """The line's layout, with noise in its codes unless ``plain``."""
        text = self.text_of(rng, line.reference, plain) + self.text_of(rng, line.rows, plain)
        codes = self.codes_of((*line.reference, *line.rows))
        if not plain:
            codes = add_noise(rng, codes, self.mix)
        frames = int(sum(self.frames[list(line.rows)]))
        return lay_out(self.ids, text, codes, frames, line.whole, line.tag)


def another(rng: np.random.Generator, peers: np.ndarray, row: int) -> int:
    """One of a voice's utterances other than ``row``; ``row`` itself where it is the only one."""
    place = int(rng.integers(len(peers)))
    return int(peers[place if peers[place] != row else (place + 1) % len(peers)])


def add_noise(rng: np.random.Generator, codes: np.ndarray, mix: Mix) -> np.ndarray:
    """Replace some codes by those of other frames of the line, so that its own mistakes are nothing new to it."""
    rate = rng.random() * mix.code_noise
    replaced = rng.random(codes.shape) < rate
    if rng.random() < mix.tail_noise:
        replaced[:, rng.integers(2, GROUPS) :] = True
    donors = rng.integers(len(codes), size=codes.shape)
    return np.where(replaced, np.take_along_axis(codes, donors, axis=0), codes)


class Lines(IterableDataset):
    """Batches without end (``epochs=0``) or once through the split without noise or chance.

    Args:
        corpus: what to draw from.
        split: whose utterances.
        seed: of the draws; each worker has its own stream.
        endless: draw with noise for ever, or give every utterance once, streamed and whole by turns.
        limit: of batches where it is not endless; 0 for all.
    """

    def __init__(self, corpus: Corpus, split: str, seed: int, endless: bool = True, limit: int = 0):
        self.corpus, self.seed, self.endless, self.limit = corpus, seed, endless, limit
        self.rows = corpus.codes.rows(split)
        if not len(self.rows):
            raise ValueError(f"no utterances in split {split!r}: it has {sorted(set(corpus.codes.splits))}")
        speakers = corpus.codes.speakers[self.rows]
        self.peers = {int(one): self.rows[speakers == one] for one in np.unique(speakers)}
        heard = np.diff(corpus.codes.mel_starts) > 0
        self.references = {one: rows[heard[rows]] for one, rows in self.peers.items()}

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        rng = np.random.default_rng([self.seed, worker.id if worker else 0])
        if not self.endless:
            batches = self._cut(self._plain_lines())
            yield from (self._collate(rng, lines) for lines in batches[: self.limit or None])
            return
        waiting: list[int] = []
        while True:
            while len(waiting) < POOL:
                waiting += rng.permutation(self.rows).tolist()
            drawn = [self._draw(rng, row) for row in waiting[:POOL]]
            waiting = waiting[POOL:]
            batches = self._cut([line for line in drawn if line is not None])
            for place in rng.permutation(len(batches)):
                yield self._collate(rng, batches[place])

    def _draw(self, rng: np.random.Generator, row: int) -> Line | None:
        return self.corpus.draw_line(rng, row, self.peers[int(self.corpus.codes.speakers[row])])

    def _plain_lines(self) -> list[Line]:
        corpus, lines = self.corpus, []
        for place, row in enumerate(self.rows.tolist()):
            whole, frames = bool(place % 2), int(corpus.frames[row])
            length = length_of(len(corpus.tokens[0][row]), 0, frames, whole, tag=False)
            lines.append(Line((row,), (), whole, False, length))
        return lines

    def _cut(self, lines: list[Line]) -> list[list[Line]]:
        """Batches of about equal lengths whose padded positions fill the budget."""
        batches: list[list[Line]] = []
        current: list[Line] = []
        for line in sorted(lines, key=lambda one: one.length):
            if current and _rounded(line.length) * (len(current) + 1) > self.corpus.mix.positions:
                batches.append(current)
                current = []
            current.append(line)
        return [*batches, current] if current else batches

    def _collate(self, rng: np.random.Generator, lines: Sequence[Line]) -> Batch:
        laid = [self.corpus.lay_out(rng, line, plain=not self.endless) for line in lines]
        count, length = len(lines), _rounded(max(len(one.text) for one in laid))
        text = np.zeros((count, length), np.int16)
        codes = np.full((count, length, GROUPS), NOTHING, np.int16)
        targets = np.full_like(codes, NOTHING)
        phones = np.full((count, length, 2), UNKNOWN_PHONE, np.int16)
        for place, (line, one) in enumerate(zip(lines, laid, strict=True)):
            text[place, : len(one.text)] = one.text
            codes[place, : len(one.text)] = one.codes
            ahead = slice(one.first, one.first + one.frames)
            targets[place, ahead] = self.corpus.codes_of(line.rows)
            targets[place, ahead.stop, 0] = self.corpus.ids.eos
            phones[place, ahead] = np.concatenate(
                [self.corpus.codes.utterance_phones(row) for row in line.rows]
            )
        speakers = self.corpus.codes.speakers[[line.rows[0] for line in lines]]
        arrays = (text, codes, targets, phones, [one.speaker_at for one in laid], speakers)
        mels, picked = self._mel_rows(rng, lines), self._pick(rng, targets)
        return Batch(*(torch.as_tensor(np.asarray(item)) for item in (*arrays, mels, picked)))

    def _pick(self, rng: np.random.Generator, targets: np.ndarray) -> np.ndarray:
        """As many frames as the mix says, drawn once each where there are enough: one shape for all batches."""
        found = np.flatnonzero(targets[..., 1] != NOTHING)
        wanted = self.corpus.mix.predictor_frames
        return rng.choice(found, size=wanted, replace=len(found) < wanted)

    def _mel_rows(self, rng: np.random.Generator, lines: Sequence[Line]) -> np.ndarray:
        """A stretch of another sentence of each voice; a shorter sentence goes round and round."""
        starts = self.corpus.codes.mel_starts
        least, most = self.corpus.mix.reference_frames
        length = int(rng.integers(least // ROUND, most // ROUND + 1)) * ROUND
        speakers = self.corpus.codes.speakers
        rows = np.array(
            [another(rng, self.references[int(speakers[line.rows[0]])], line.rows[0]) for line in lines]
        )
        begins, sizes = starts[rows], (starts[rows + 1] - starts[rows]).clip(min=1)
        offsets = (rng.random(len(rows)) * sizes).astype(np.int64)
        offsets = np.where(sizes > length, np.minimum(offsets, sizes - length), 0)
        places = offsets[:, None] + np.arange(length)[None]
        return begins[:, None] + places % sizes[:, None]


def _rounded(length: int) -> int:
    return -(-length // ROUND) * ROUND


def batches_of(lines: Lines, workers: int, pin: bool) -> Iterator[Batch]:
    """Batches made by worker processes (0: by this one)."""
    loader = DataLoader(
        lines, batch_size=None, num_workers=workers, pin_memory=pin, prefetch_factor=8 if workers else None
    )
    return iter(loader)
