"""Find words that a line skips, repeats or invents, from an attention head and from its codes.

In a good line the head attends to the tokens one after another, with nearly all of its weight. ``WordGuard`` follows
the cheapest path that stays on its token or goes to the next one with each frame; frames that attend elsewhere, or to
nothing, have a cost. A line whose cost grows faster than a good line's has failed, which shows while it is spoken.

The head hardly moves for a single word that is repeated or invented. The codes of a finished line do: ``LetterTable``
knows the letters that they sound like. The best path through the letters of the text is compared with the best ones
that skip words, go back, or leave the text for a while.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...postprocess.ends import window_powers
from .alignment import Trace
from .written import CHARACTER

# Costs in frames of full weight, searched on half of the lines of ``python -m lab.words guard FOLDER --lines forced``.
# The cost of a frame on the path's next token, beyond it, on the last one, and before that.
AHEAD, FAR_AHEAD, BEHIND, FAR_BEHIND = 0.5, 1.65, 1.3, 1.4
# The weight of a sure frame, and the cost of a frame without it, also after the last word.
SURE, UNSURE, UNSURE_BEHIND = 0.5, 1.3, 0.25
ALLOWED, LIMIT = 0.06, 2.7  # cost per frame, and the excess that shows a fault
FINISHED = 0.5  # the least weight of the mark after the last word in a complete line
LEFT = 2  # unseen tokens of the last word
SEEN = 0.1  # the least weight of a seen token
HELD = 25  # frames in a row on one token: longer than a token with the pause after it
SAID = re.compile(r"[^\W_](?:\S*[^\W_])?")  # a word between spaces, without the punctuation around it
UNSPACED = re.compile(f"[{CHARACTER}]")
# An echo: a frame with less weight on the text belongs to other words.
UNSEEN = 0.1
ECHO_FRAMES = 3  # of audio before the text, 0.24 s. Good lines had none, and at most one frame of silence
FOLLOWED = 0.5  # the median weight after them, if the head follows the text
LOUD_DB, LOUD_PERCENTILE = 25.0, 95  # below the loud parts of the line; quieter frames are silence or breath
LONGEST_QUOTE = 60  # characters
TELLING = {
    "skipped": "did not say {}",
    "repeated": "said {} again",
    "invented": "said something else after {}",
}


@dataclass(frozen=True)
class WordFault:
    """A fault in the words of a line."""

    kind: str  # "skipped", "repeated" or "invented"
    first: int  # text token of skipped or repeated words, or of the word before invented ones
    end: int  # the token after them

    def describe(self, text: str, spans: Sequence[tuple[int, int]]) -> str:
        """Return it in words, such as "did not say 'on the bridge'"; ``spans`` are the tokens' characters."""
        words = " ".join(text[spans[self.first][0] : spans[self.end - 1][1]].split())
        return TELLING[self.kind].format(
            repr(words if len(words) <= LONGEST_QUOTE else words[: LONGEST_QUOTE - 3] + "...")
        )


class WordGuard:
    """Follows one line up to its first fault.

    ``words`` are the text tokens of each word, first and end (excluded), in order and without punctuation, at least
    one; ``count`` is the number of the text's tokens.
    """

    def __init__(self, words: Sequence[tuple[int, int]], count: int):
        # State 0 is before the first token, state k on token k - 1.
        self._words, self._last = words, words[-1][1]
        self._is_said = np.zeros(count + 1, dtype=bool)
        for first, end in words:
            self._is_said[first + 1 : end + 1] = True
        self._costs = np.where(np.arange(count + 1) == 0, 0.0, np.inf)  # of the cheapest path to each state
        self._seen = np.zeros(count + 1)  # the highest weight of each state
        self._states: list[int] = []  # of each frame; 0 if the head saw none
        self._held = 0  # the frames in a row on the path's state
        self._excess = 0.0  # the cost above ALLOWED, accumulated
        self._begin = self._begin_at = 0  # since this frame and this state of the path

    @property
    def _at(self) -> int:
        """The path's state."""
        return int(self._costs.argmin())

    def take(self, token: int, weight: float) -> WordFault | None:
        """Add a frame, by the token with the most attention (-1: none) and its weight, 0 to 1; return any fault."""
        state, was_at = token + 1, self._at
        before = self._costs[was_at]
        if not self._excess:
            self._begin, self._begin_at = len(self._states), was_at
        self._states.append(state if weight >= SEEN else 0)
        self._seen[state] = max(self._seen[state], weight)
        reached = np.minimum(self._costs, np.append(np.inf, self._costs[:-1]))
        self._costs = reached + self._frame_costs(state, weight)
        at = self._at
        self._held = self._held + 1 if at == was_at else 1
        self._excess = max(0.0, self._excess + self._costs[at] - before - ALLOWED)
        if self._excess < LIMIT and (self._held < HELD or at > self._last):
            return None
        return self._describe()

    def end(self) -> WordFault | None:
        """Return the fault of a line that ended by itself without all of its words."""
        is_finished = self._seen[min(self._last + 1, len(self._seen) - 1) :].max() >= FINISHED
        if is_finished and len(self._unseen(self._words[-1][0] + 1, self._last + 1)) < LEFT:
            return None
        unseen = self._unseen(0, self._last + 1)
        return self._fault("skipped", unseen[0] if unseen else self._last, self._last)

    def _frame_costs(self, state: int, weight: float) -> np.ndarray:
        if not state:
            return np.zeros(len(self._costs))
        costs = np.full(len(self._costs), FAR_AHEAD)
        costs[state:] = FAR_BEHIND
        costs[state - 1], costs[state] = AHEAD, 0.0
        costs[state + 1 : state + 2] = BEHIND
        unsure = np.full(len(costs), UNSURE)
        unsure[self._last + 1 :] = UNSURE_BEHIND
        return costs * weight + unsure * max(0.0, SURE - weight)

    def _describe(self) -> WordFault:
        begin = self._begin_at
        if unseen := self._unseen(begin, max(self._at, self._states[-1])):
            return self._fault("skipped", unseen[0], unseen[-1])
        again = [state for state in self._states[self._begin :] if 0 < state < begin]
        kind, first = ("repeated", min(again)) if len(again) > 2 else ("invented", begin)
        return self._fault(kind, first, begin)

    def _unseen(self, begin: int, end: int) -> list[int]:
        return [state for state in range(begin, end) if self._is_said[state] and self._seen[state] < SEEN]

    def _fault(self, kind: str, first: int, last: int) -> WordFault:
        ends = [end for _, end in self._words]
        words = [self._words[min(bisect_left(ends, state), len(ends) - 1)] for state in (first, last)]
        return WordFault(kind, words[0][0], words[1][1])


def follow_text(text: str, spans: Sequence[tuple[int, int]]) -> WordGuard | None:
    """Return a guard for a text by the characters of each token; None for one without words between spaces."""
    words = said_tokens(text, spans)
    return WordGuard(words, len(spans)) if words else None


def said_tokens(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first token of each word and the one after its last, from the characters of each token."""
    # A text with Chinese or Japanese characters has none, as it has no spaces between words.
    if UNSPACED.search(text):
        return []
    visible = [index for index, (begin, end) in enumerate(spans) if text[begin:end].strip()]
    starts, ends = ([spans[index][side] for index in visible] for side in (0, 1))
    words = []
    for match in SAID.finditer(text):
        first, last = bisect_right(ends, match.start()), bisect_left(starts, match.end())
        if last > first:
            words.append((visible[first], visible[last - 1] + 1))
    return words


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


def find_fault(
    text: str, spans: Sequence[tuple[int, int]], trace: Trace, codes: np.ndarray | None, table: LetterTable | None
) -> WordFault | None:
    """Return a line's fault: by its letters if there is a table of them and the line has ended by itself.

    ``codes``: its group 0, ``[T]``; None if it was ended.
    """
    if (guard := follow_text(text, spans)) is None:
        return None
    faults = [guard.take(*frame) for frame in zip(trace.tokens.tolist(), trace.weights.tolist(), strict=True)]
    missing = None if codes is None else guard.end()
    letters, tokens = spell(text, spans)
    if table is None or codes is None or not len(letters):
        return next((fault for fault in faults if fault is not None), missing)
    return missing or find_by_letters(table, codes, letters, tokens, trace)


def begins_elsewhere(trace: Trace | None, waveform: np.ndarray) -> bool:
    """Return whether a line (samples float ``[T]``) begins with words that are not in its text: an echo.

    After a reference (ICL), it may repeat the reference's last words. The head has no weight on the text meanwhile.
    Silence before the text is no echo, which the audio shows.
    """
    if trace is None:
        return False
    seen = np.flatnonzero(trace.weights >= UNSEEN)
    if not len(seen) or seen[0] < ECHO_FRAMES or np.median(trace.weights[seen[0] :]) < FOLLOWED:
        return False
    power = window_powers(waveform, len(waveform) // len(trace.weights))[: len(trace.weights)]
    loud = power > np.percentile(power, LOUD_PERCENTILE) * 10 ** (-LOUD_DB / 10)
    return int(loud[: seen[0]].sum()) >= ECHO_FRAMES
