"""Find the samples of each sentence of a spoken text.

Pieces have exact times. Within a piece, sentences are separated at a pause near the place that their character counts
suggest; without one, both stay together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ..split import split_sentences

Span = tuple[int, int]
REACH = 0.5  # how far a pause may be from the expected place, relative to the shorter sentence


@dataclass(frozen=True)
class Segment:
    """A part of a line that ends at a piece's end or a pause between sentences."""

    letters: int
    start: int
    end: int


def count_letters(text: str) -> int:
    # Pieces may have other punctuation and spaces than the text.
    return sum(char.isalnum() for char in text)


def join_sentences(parts: Sequence[Segment], said: Sequence[str], shown: Sequence[str]) -> Iterator[tuple[str, Span]]:
    """Yield texts of whole sentences with their samples: parts are joined until one ends with a sentence."""
    ends = {letters: count for count, letters in enumerate(accumulate(map(count_letters, said)), start=1)}
    done, begin = 0, parts[0].start
    totals = list(accumulate(part.letters for part in parts))
    for number, (part, total) in enumerate(zip(parts, totals, strict=True), start=1):
        count = len(said) if number == len(parts) else ends.get(total, done)
        if count > done:
            yield " ".join(shown[done:count]), (begin, part.end)
            done, begin = count, parts[min(number, len(parts) - 1)].start


def split_at_pauses(text: str, begin: int, end: int, quiet: Sequence[Span]) -> list[Segment]:
    """Return the parts of a piece, whose samples are ``begin`` to ``end``, by its ``quiet`` spans within them."""
    sentences = split_sentences(text)
    pauses = [(start, stop) for start, stop in quiet if start > 0 and stop < end - begin]
    lengths = [len(sentence) for sentence in sentences]
    expected = [total / sum(lengths) * (end - begin) for total in accumulate(lengths)][:-1]
    parts: list[Segment] = []
    waiting, last = [sentences[0]], 0
    for sentence, place, (before, after) in zip(sentences[1:], expected, pairwise(lengths), strict=True):
        reach = REACH * min(before, after) / sum(lengths) * (end - begin)
        near = [(stop - start, start + stop) for start, stop in pauses if abs((start + stop) / 2 - place) <= reach]
        if near and max(near)[1] // 2 > last:
            parts.append(Segment(count_letters("".join(waiting)), begin + last, begin + max(near)[1] // 2))
            waiting, last = [], max(near)[1] // 2
        waiting.append(sentence)
    return [*parts, Segment(count_letters("".join(waiting)), begin + last, end)]
