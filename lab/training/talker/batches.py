"""Draw lines, lay them out and batch them by length; runs in worker processes on the CPU, with numpy alone.

The training's batches have few shapes, so that an update of each can be captured: a line is padded to the next of
``Mix.lengths``, and waits until so many of its length have been drawn as fill a batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .batch import Batch, pack
from .codes import UNKNOWN_PHONE, Codes
from .config import GROUPS, Mix
from .layout import NOTHING, Ids, Layout, lay_out, pad_layouts
from .tokenizer import TextTokens

ROUND = 16  # held-out batches' lengths are multiples of this
MOST_JOINED = 3
PREFETCHED = 8  # batches a worker


@dataclass(frozen=True)
class Line:
    """What one line is made of: utterances of one voice (``rows``), those of its reference, and the layout."""

    rows: tuple[int, ...]
    reference: tuple[int, ...]
    whole: bool
    tag: bool


Laid = tuple[Line, Layout]


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
        return Line(
            tuple(rows), tuple(reference), rng.random() < mix.whole_text, rng.random() < mix.language_tag
        )

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
    rates = np.full(GROUPS, rng.random() * mix.code_noise)
    rates[0] *= mix.first_noise
    replaced = rng.random(codes.shape) < rates
    if rng.random() < mix.tail_noise:
        replaced[:, rng.integers(2, GROUPS) :] = True
    donors = rng.integers(len(codes), size=codes.shape)
    return np.where(replaced, np.take_along_axis(codes, donors, axis=0), codes)


class Lines(IterableDataset):
    """Batches without end, or once through the split without noise or chance.

    Args:
        corpus: what to draw from.
        split: whose utterances.
        seed: of the draws; each worker of each ``rank`` has its own stream.
        rank: of this process among those that train together.
        endless: draw with noise for ever, or give every utterance once, streamed and whole by turns.
        limit: of batches where it is not endless; 0 for all.
    """

    def __init__(
        self, corpus: Corpus, split: str, seed: int, rank: int = 0, endless: bool = True, limit: int = 0
    ):
        self.corpus, self.seed, self.rank, self.endless, self.limit = corpus, seed, rank, endless, limit
        self.rows = corpus.codes.rows(split)
        if not len(self.rows):
            raise ValueError(f"no utterances in split {split!r}: it has {sorted(set(corpus.codes.splits))}")
        speakers = corpus.codes.speakers[self.rows]
        self.peers = {int(one): self.rows[speakers == one] for one in np.unique(speakers)}
        heard = corpus.codes.first_takes(split)
        self.references = {one: heard[corpus.codes.speakers[heard] == one] for one in self.peers}

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        rng = np.random.default_rng([self.seed, self.rank, worker.id if worker else 0])
        if self.endless:
            yield from self._drawn(rng)
        else:
            laid = self._plain(rng)
            lengths = [len(layout.text) for _, layout in laid]
            cut = cut_by_length(lengths, self.corpus.mix.positions, ROUND)
            for places in islice(cut, self.limit or None):
                yield self._collate(rng, [laid[place] for place in places], _rounded(lengths[places[-1]]))

    def _drawn(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Full batches of the mix's lengths; a line longer than all of them is left out."""
        mix = self.corpus.mix
        waiting: dict[int, list[Laid]] = {length: [] for length in mix.lengths}
        while True:
            for row in rng.permutation(self.rows).tolist():
                line = self.corpus.draw_line(rng, row, self.peers[int(self.corpus.codes.speakers[row])])
                if line is None:
                    continue
                layout = self.corpus.lay_out(rng, line, plain=False)
                place = bisect_left(mix.lengths, len(layout.text))
                if place == len(mix.lengths):
                    continue
                length = mix.lengths[place]
                waiting[length].append((line, layout))
                if len(waiting[length]) == mix.positions // length:
                    yield self._collate(rng, waiting[length], length)
                    waiting[length] = []

    def _plain(self, rng: np.random.Generator) -> list[Laid]:
        lines = [Line((row,), (), bool(place % 2), False) for place, row in enumerate(self.rows.tolist())]
        return [(line, self.corpus.lay_out(rng, line, plain=True)) for line in lines]

    def _collate(self, rng: np.random.Generator, laid: Sequence[Laid], length: int) -> Batch:
        corpus, count = self.corpus, len(laid)
        text, codes = pad_layouts([one for _, one in laid], length)
        targets = np.full_like(codes, NOTHING)
        phones = np.full((count, length, 2), UNKNOWN_PHONE, np.int32)
        for place, (line, one) in enumerate(laid):
            ahead = slice(one.first, one.first + one.frames)
            targets[place, ahead] = corpus.codes_of(line.rows)
            targets[place, ahead.stop, 0] = corpus.ids.eos
            phones[place, ahead] = np.concatenate([corpus.codes.utterance_phones(row) for row in line.rows])
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
        """As many frames as the mix says, drawn once each where there are enough: one shape for all batches."""
        found = np.flatnonzero(targets[..., 1] != NOTHING)
        wanted = self.corpus.mix.predictor_frames
        return rng.choice(found, size=wanted, replace=len(found) < wanted)

    def _stretches(self, rng: np.random.Generator, lines: Sequence[Line]) -> np.ndarray:
        """Of another sentence of each voice: first mel frame and how many ``[B, 2]``."""
        starts, speakers = self.corpus.codes.mel_starts, self.corpus.codes.speakers
        least, most = self.corpus.mix.reference_frames
        rows = np.array(
            [another(rng, self.references[int(speakers[line.rows[0]])], line.rows[0]) for line in lines]
        )
        whole = (starts[rows + 1] - starts[rows]).clip(min=1)
        sizes = np.minimum(whole, rng.integers(least, most + 1, size=len(rows)))
        begins = starts[rows] + (rng.random(len(rows)) * (whole - sizes + 1)).astype(np.int64)
        return np.stack((begins, sizes), axis=1)


def cut_by_length(lengths: Sequence[int], budget: float, unit: int = 1) -> Iterator[list[int]]:
    """Batches of places of about equal lengths, the shortest first, whose padded lengths fill a budget.

    Args:
        lengths: of what is to be batched.
        budget: a batch's items times its longest one's length, at most.
        unit: lengths are padded to a multiple of it.
    """
    batch: list[int] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        if batch and _rounded(lengths[place], unit) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _rounded(length: int, unit: int = ROUND) -> int:
    return -(-length // unit) * unit


def batches_of(lines: Lines, workers: int, pin: bool) -> Iterator[Batch]:
    """Batches made by worker processes (0: by this one)."""
    loader = DataLoader(
        lines,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        pin_memory=pin,
        prefetch_factor=PREFETCHED if workers else None,
    )
    return iter(loader)
