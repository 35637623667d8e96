"""Find wrong words in a finished line by the letters that its codes sound like.

The alignment head hardly moves for a single word that is repeated or invented; the codes do. The best path through the
letters of the text is compared with the best ones that skip words, go back, or leave the text for a while.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .guard import WordFault
from .trace import Trace

GAP, PAUSE, FIRST = 0, 1, 2  # classes: between words, with punctuation or at an end, and the letter a
LETTERS = FIRST + 26
BESIDE = 1  # frames and letters on either side that belong to the evidence of a frame
LEAST = -3.0  # nats; a frame's evidence against a letter counts no more
ATTENTION = 2.0  # nats for the head's full weight on a letter's token
EDGE = 4  # letters at either end that a path may leave out
OUTSIDE = 1.0  # nats for a frame that is not of the text
# Nats by which a fault must explain a line better: three alarms in the 568 development lines (docs/log/words.md).
LIMITS = {"skipped": 12.6, "repeated": 3.0, "invented": 6.6}
READABLE = re.compile(r"[\Wa-z]*[a-z][\Wa-z]*", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class LetterTable:
    """The evidence of a checkpoint's group 0 codes for the letters in a frame (``python -m lab.words letters``).

    ``weights`` ``[3, codes + 1, 3, LETTERS]``: of the codes before, at and after the frame (the last index: no frame)
    for the letters before, at and after its place. ``prior`` ``[3, LETTERS]``: their log shares. ``steps``: the log
    shares of 0, 1, ... letters from a frame to the next.
    """

    weights: np.ndarray
    prior: np.ndarray
    steps: np.ndarray

    def worth(self, codes: np.ndarray, letters: np.ndarray, tokens: np.ndarray, trace: Trace) -> np.ndarray:
        """Return the worth of each letter in each frame ``[T, letters]``, in nats; arguments as below."""
        codes = np.pad(codes, BESIDE, constant_values=self.weights.shape[1] - 1)
        windows = sliding_window_view(codes, 2 * BESIDE + 1)
        logits = np.sum([own[windows[:, index]] for index, own in enumerate(self.weights)], axis=0)
        shares = logits - np.logaddexp.reduce(logits, -1, keepdims=True) - self.prior
        around = sliding_window_view(np.pad(letters, BESIDE, constant_values=PAUSE), 2 * BESIDE + 1)
        evidence = np.sum([shares[:, index, own].clip(LEAST) for index, own in enumerate(around.T)], axis=0)
        return evidence + ATTENTION * trace.weights[:, None] * (trace.tokens[:, None] == tokens)


def spell(text: str, spans: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each letter and gap of a text, and its token; nothing for a text with other letters."""
    owners = np.full(len(text) + 1, len(spans) - 1)
    for token, (begin, end) in enumerate(spans):
        owners[begin:end] = token
    found = list(re.finditer(r"[a-z]|[^a-z']+", text.lower() + ".")) if READABLE.fullmatch(text) else []
    kinds = {" ": GAP, **{letter: FIRST + index for index, letter in enumerate(ascii_lowercase)}}
    classes = [kinds.get(one[0], PAUSE) for one in found]
    return np.array(classes, dtype=int), owners[[one.start() for one in found]]


def find_by_letters(
    table: LetterTable, codes: np.ndarray, letters: np.ndarray, tokens: np.ndarray, trace: Trace
) -> WordFault | None:
    """Return the clearest fault of a line that ended by itself.

    ``codes`` int64 ``[T]`` are of group 0; ``letters`` and ``tokens`` as of ``spell``.
    """
    if min(len(codes), len(letters)) < EDGE:
        return None
    found = compare(table.worth(codes, letters, tokens, trace), letters < FIRST, table.steps)
    kind = max(found, key=lambda one: found[one][0] - LIMITS[one])
    excess, first, last = found[kind]
    if not excess > LIMITS[kind]:
        return None
    is_letter = letters >= FIRST
    first, last = max(first, 0), max(last, 0)
    while first < last and not is_letter[first]:
        first += 1
    while first and is_letter[first - 1]:
        first -= 1
    while first < last and not is_letter[last]:
        last -= 1
    return WordFault(kind, int(tokens[first]), int(tokens[last]) + 1)


def compare(gains: np.ndarray, gaps: np.ndarray, steps: np.ndarray) -> dict[str, tuple[float, int, int]]:
    """Return how much better each kind of fault explains a line than its text does, and the first and last letter.

    ``gains`` ``[T, letters]`` is the worth of each place in each frame; ``gaps`` says which are between words.
    """
    before, after = path_scores(gains, steps), path_scores(gains[::-1, ::-1], steps)[::-1, ::-1]
    beside = np.pad(gaps, 1, constant_values=True)
    leaves = np.where(gaps | beside[2:], before, -np.inf)[:-1]  # behind a word
    enters = np.where(gaps | beside[:-2], after, -np.inf)[1:]  # ahead of a word
    ahead = np.maximum.accumulate(leaves[:, :-2], 1) + enters[:, 2:]
    frame, place = np.unravel_index(ahead.argmax(), ahead.shape)
    skipped = ahead.max(), leaves[frame, : place + 1].argmax() + 1, place + 1
    again = np.maximum.accumulate(leaves[:, :0:-1], 1)[:, ::-1] + enters[:, :-1]
    frame, place = np.unravel_index(again.argmax(), again.shape)
    repeated = again.max(), place, place + 1 + leaves[frame, place + 1 :].argmax()
    invented = _leave_text(leaves, enters)
    best = float(before[-1, -EDGE:].max())
    found: dict[str, tuple[Any, Any, Any]] = {"skipped": skipped, "repeated": repeated, "invented": invented}
    return {kind: (float(score) - best, int(first), int(last)) for kind, (score, first, last) in found.items()}


def path_scores(gains: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the score of the best path to each letter in each frame, ``[T, letters]``."""
    wide = len(steps) - 1
    scores = np.full((len(gains), wide + gains.shape[1]), -np.inf)
    scores[0, wide : wide + EDGE] = gains[0, :EDGE]
    for before, own, gain in zip(scores[:-1], scores[1:, wide:], gains[1:], strict=True):
        own[:] = (sliding_window_view(before, wide + 1) + steps[::-1]).max(1) + gain
    return scores[:, wide:]


def _leave_text(leaves: np.ndarray, enters: np.ndarray) -> tuple[float, int, int]:
    """Return the best score of a path that is outside the text for a while, and the last letters before."""
    outside, best = np.full(leaves.shape[1], -np.inf), (-np.inf, 0, 0)
    for left, entered in zip(leaves[:-1], enters[1:], strict=True):
        outside = np.maximum(outside, left) + OUTSIDE
        returns = np.pad(outside, (2, 0), constant_values=-np.inf)  # at its letter, or after the gap
        total = sliding_window_view(returns, 3).max(1) + entered
        best = max(best, (total.max(), total.argmax() - 2, total.argmax() - 1))
    return best
