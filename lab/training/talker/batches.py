"""Sample lines, lay them out and batch them by length; runs in worker processes on the CPU, with numpy only.

Training batches have few shapes, so that an update of each shape can be captured: a line is padded to the next of
``Mix.lengths`` and waits until there are enough lines of its length for a batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .batch import Batch, pack
from .codes import ROUGH, UNKNOWN_PHONE, Codes
from .config import GROUPS, Mix
from .layout import NOTHING, Ids, Layout, Style, lay_out, pad_layouts
from .tokenizer import TextTokens

ROUND = 16  # lengths of held-out batches are multiples of this
SHORT_WORDS = 5  # of a short target
PREFETCHED = 8  # batches per worker

Made = TypeVar("Made")


@dataclass(frozen=True)
class Line:
    """Content of a line: utterances of one voice (``rows``), those of its reference, and the style of its layout."""

    rows: tuple[int, ...]
    reference: tuple[int, ...]
    whole: bool
    tag: bool


Laid = tuple[Line, Layout]


class Corpus:
    """Codes and the texts' tokens, to sample lines from."""

    def __init__(self, codes: Codes, tokens: TextTokens, ids: Ids, mix: Mix):
        self.codes, self.ids, self.mix = codes, ids, mix
        self.frames = codes.frames()
        self.rough = by_voice(codes, codes.rows(ROUGH))
        self.short = np.array([len(text.split()) <= SHORT_WORDS for text in codes.texts])
        plain = tokens.encode(codes.texts)
        respelled = (
            tokens.respell(codes.texts, mix.bpe_dropout, seed) for seed in range(1, mix.tokenizations)
        )
        self.tokens = [plain, *respelled]
        # After another sentence a text begins with a space, which changes the tokens of its first word.
        self.later = tokens.encode([f" {text}" for text in codes.texts])

    def sample_line(self, rng: np.random.Generator, row: int, peers: np.ndarray) -> Line | None:
        """Return a line that starts with utterance ``row``, or None if it is too long; ``peers`` are its voice's.

        After a reference it may be another, short utterance of the voice.
        """
        mix = self.mix
        reference = self._reference(rng, row, peers) if rng.random() < mix.icl else []
        rows = self._short(rng, row, peers) if reference and rng.random() < mix.short_targets else [row]
        if rows == [row] and rng.random() < mix.join:
            rows += rng.choice(peers, size=rng.integers(1, mix.most_joined)).tolist()
        while len(rows) > 1 and sum(self.frames[rows + reference]) > mix.longest_frames:
            rows.pop()
        if sum(self.frames[rows + reference]) > mix.longest_frames:
            rows, reference = [row], []
        if self.frames[row] > mix.longest_frames:
            return None
        return Line(
            tuple(rows), tuple(reference), rng.random() < mix.whole_text, rng.random() < mix.language_tag
        )

    def _reference(self, rng: np.random.Generator, row: int, peers: np.ndarray) -> list[int]:
        """Return some of a voice's utterances, other than ``row`` if there are others; some as flawed recordings."""
        if rng.random() < self.mix.rough:
            peers = self._other_texts(self.rough.get(int(self.codes.speakers[row]), peers), row)
        return [another(rng, peers, row) for _ in range(rng.integers(1, self.mix.reference_lines + 1))]

    def _other_texts(self, rows: np.ndarray, row: int) -> np.ndarray:
        """Return the rows whose text is not that of ``row``; all of them if there are no others."""
        others = [one for one in rows.tolist() if self.codes.texts[one] != self.codes.texts[row]]
        return np.array(others) if others else rows

    def _short(self, rng: np.random.Generator, row: int, peers: np.ndarray) -> list[int]:
        """Return one of a voice's utterances of few words, or ``row`` if it has none."""
        short = peers[self.short[peers]]
        return [int(rng.choice(short))] if len(short) else [row]

    def text_of(self, rng: np.random.Generator, rows: Sequence[int], plain: bool) -> list[int]:
        """Return the tokens of sentences joined by spaces; half of the first sentences get a random tokenization."""
        spelling = 0 if plain or rng.random() < 0.5 else int(rng.integers(len(self.tokens)))
        text = list(self.tokens[spelling][rows[0]]) if rows else []
        for row in rows[1:]:
            text += self.later[row]
        return text

    def codes_of(self, rows: Sequence[int]) -> np.ndarray:
        """Return the utterances' codes, int16 ``[F, 16]``."""
        return np.concatenate([self.codes.utterance_codes(row) for row in rows])

    def lay_out(self, rng: np.random.Generator, line: Line, other: int | None) -> Layout:
        """Lay out a line, with noise in its codes, some of it from the utterance ``other``; None: as it is."""
        plain = other is None
        text = self.text_of(rng, line.reference, plain) + self.text_of(rng, line.rows, plain)
        codes = self.codes_of((*line.reference, *line.rows))
        if other is not None:
            # A reference's frames must remain its voice's.
            strange = not line.reference and rng.random() < self.mix.voice_noise
            codes = add_noise(rng, codes, self.codes_of([other]) if strange else codes, self.mix)
        frames = int(sum(self.frames[list(line.rows)]))
        return lay_out(self.ids, text, codes, frames, Style(line.whole, line.tag))


def by_voice(codes: Codes, rows: np.ndarray) -> dict[int, np.ndarray]:
    """Return the rows of each voice that has some, by its number."""
    speakers = codes.speakers[rows]
    return {int(one): rows[speakers == one] for one in np.unique(speakers)}


def another(rng: np.random.Generator, peers: np.ndarray, row: int) -> int:
    """Return one of a voice's utterances other than ``row``, or ``row`` if it is the only one."""
    index = int(rng.integers(len(peers)))
    return int(peers[index if peers[index] != row else (index + 1) % len(peers)])


def add_noise(rng: np.random.Generator, codes: np.ndarray, donors: np.ndarray, mix: Mix) -> np.ndarray:
    """Replace some codes by those of frames of ``donors``, ``[F', 16]``.

    Frames of the same line teach the talker to cope with its errors. Those of another voice teach it to speak as the
    speaker embedding says: in a recording all frames before one have its voice already, in a clone they are its own.
    """
    rates = np.full(GROUPS, rng.random() * mix.code_noise)
    rates[0] *= mix.first_noise
    replaced = rng.random(codes.shape) < rates
    if rng.random() < mix.tail_noise:
        replaced[:, rng.integers(2, GROUPS) :] = True
    chosen = rng.integers(len(donors), size=codes.shape)
    return np.where(replaced, np.take_along_axis(donors, chosen, axis=0), codes)


class Lines(IterableDataset):
    """Batches of a split's lines: endless and with noise, or each line once without noise.

    Args:
        corpus: the source of the lines.
        split: name of the split.
        seed: random seed; each worker of each ``rank`` has its own stream.
        rank: of this process among those that train together.
        once: None for endless random batches; else every utterance once, alternately streamed and with its whole text
            in the prefill, in at most this many batches (0: all).
    """

    def __init__(self, corpus: Corpus, split: str, seed: int, rank: int = 0, once: int | None = None):
        self.corpus, self.seed, self.rank, self.once = corpus, seed, rank, once
        self.rows = corpus.codes.rows(split)
        if not len(self.rows):
            raise ValueError(
                f"no utterances in split {split!r}: choose one of {sorted(set(corpus.codes.splits))}"
            )
        self.peers = by_voice(corpus.codes, self.rows)
        self.references = by_voice(corpus.codes, corpus.codes.first_takes(split))

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        rng = np.random.default_rng([self.seed, self.rank, worker.id if worker else 0])
        if self.once is None:
            yield from self._sampled(rng)
        else:
            laid = self._plain(rng)
            lengths = [len(layout.text) for _, layout in laid]
            cut = cut_by_length(lengths, self.corpus.mix.positions, ROUND)
            for indices in islice(cut, self.once or None):
                yield self._collate(rng, [laid[index] for index in indices], _rounded(lengths[indices[-1]]))

    def _sampled(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield full batches of the mix's lengths; a line longer than all of them is skipped."""
        mix = self.corpus.mix
        waiting: dict[int, list[Laid]] = {length: [] for length in mix.lengths}
        while True:
            for row in rng.permutation(self.rows).tolist():
                line = self.corpus.sample_line(rng, row, self.peers[int(self.corpus.codes.speakers[row])])
                if line is None:
                    continue
                layout = self.corpus.lay_out(rng, line, int(rng.choice(self.rows)))
                slot = bisect_left(mix.lengths, len(layout.text))
                if slot == len(mix.lengths):
                    continue
                length = mix.lengths[slot]
                waiting[length].append((line, layout))
                if len(waiting[length]) == mix.positions // length:
                    yield self._collate(rng, waiting[length], length)
                    waiting[length] = []

    def _plain(self, rng: np.random.Generator) -> list[Laid]:
        lines = [Line((row,), (), bool(index % 2), False) for index, row in enumerate(self.rows.tolist())]
        return [(line, self.corpus.lay_out(rng, line, None)) for line in lines]

    def _collate(self, rng: np.random.Generator, laid: Sequence[Laid], length: int) -> Batch:
        corpus, count = self.corpus, len(laid)
        text, codes = pad_layouts([one for _, one in laid], length)
        targets = np.full_like(codes, NOTHING)
        phones = np.full((count, length, 2), UNKNOWN_PHONE, np.int32)
        for index, (line, one) in enumerate(laid):
            ahead = slice(one.first, one.first + one.frames)
            targets[index, ahead] = corpus.codes_of(line.rows)
            targets[index, ahead.stop, 0] = corpus.ids.eos
            phones[index, ahead] = np.concatenate([corpus.codes.utterance_phones(row) for row in line.rows])
        lines = [line for line, _ in laid]
        known = [(targets[..., 0] != NOTHING).sum(), (phones != UNKNOWN_PHONE).sum(), count]
        return pack(
            {
                "text": text,
                "codes": codes,
                "targets": targets,
                "phones": phones,
                "speaker_at": np.array([one.speaker_at for _, one in laid]),
                "speaker": corpus.codes.speakers[[line.rows[0] for line in lines]],
                "stretches": self._stretches(rng, lines),
                "known": np.array(known),
                "picked": self._pick(rng, targets),
            }
        )

    def _pick(self, rng: np.random.Generator, targets: np.ndarray) -> np.ndarray:
        """Pick the mix's number of frames, each once if there are enough: the same shape in all batches."""
        found = np.flatnonzero(targets[..., 1] != NOTHING)
        wanted = self.corpus.mix.predictor_frames
        return rng.choice(found, size=wanted, replace=len(found) < wanted)

    def _heard(self, rng: np.random.Generator, row: int) -> int:
        """Return an utterance of the voice of ``row`` for the speaker encoder: in training also flawed recordings."""
        corpus = self.corpus
        voice = int(corpus.codes.speakers[row])
        rough = self.once is None and rng.random() < corpus.mix.rough
        return another(
            rng, corpus.rough.get(voice, self.references[voice]) if rough else self.references[voice], row
        )

    def _stretches(self, rng: np.random.Generator, lines: Sequence[Line]) -> np.ndarray:
        """Return a part of another sentence of each voice: first mel frame and number of frames, ``[B, 2]``."""
        starts = self.corpus.codes.mel_starts
        least, most = self.corpus.mix.reference_frames
        rows = np.array([self._heard(rng, line.rows[0]) for line in lines])
        whole = (starts[rows + 1] - starts[rows]).clip(min=1)
        sizes = np.minimum(whole, rng.integers(least, most + 1, size=len(rows)))
        begins = starts[rows] + (rng.random(len(rows)) * (whole - sizes + 1)).astype(np.int64)
        return np.stack((begins, sizes), axis=1)


def cut_by_length(lengths: Sequence[int], budget: float, unit: int = 1) -> Iterator[list[int]]:
    """Yield batches of indices of similar lengths, the shortest first, whose padded lengths fill a budget.

    Args:
        lengths: of the items to batch.
        budget: maximum of a batch's size times its longest length.
        unit: lengths are padded to a multiple of it.
    """
    batch: list[int] = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and _rounded(lengths[index], unit) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def as_it_is(made: Made) -> Made:
    """Return what a dataset made: a DataLoader's own function would look for tensors in it."""
    return made


def _rounded(length: int, unit: int = ROUND) -> int:
    return -(-length // unit) * unit


def batches_of(lines: Lines, workers: int, pin: bool) -> Iterator[Batch]:
    """Return batches made by worker processes (0: by this one)."""
    loader = DataLoader(
        lines,
        batch_size=None,
        num_workers=workers,
        collate_fn=as_it_is,
        pin_memory=pin,
        prefetch_factor=PREFETCHED if workers else None,
    )
    return iter(loader)
