"""Paragraphs: some sentences in one text."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence


def _in_turn(sentences: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Yield all sentences in a new order, repeatedly."""
    while True:
        yield from rng.sample(sentences, len(sentences))


def paragraphs(sentences: Sequence[str], count: int, words: tuple[int, int], seed: int) -> list[str]:
    """Return ``count`` texts of so many words, whose lengths are spread evenly; each sentence is used about as often.

    Args:
        sentences: complete, with their marks; none may have more words than the range is wide.
        words: least and most words of a paragraph.

    Raises:
        ValueError: a sentence is too long to end each paragraph within the range.
    """
    least, most = words
    if not sentences or (longest := max(len(one.split()) for one in sentences)) > most - least + 1:
        raise ValueError(
            f"paragraphs of {least} to {most} words need sentences of at most {most - least + 1} words, "
            f"not {longest if sentences else 0}"
        )
    rng = random.Random(f"{seed} paragraphs {words}")
    source, found = _in_turn(sentences, rng), []
    for _ in range(count):
        wanted, parts, size = rng.randint(least, most - longest + 1), [], 0
        while size < wanted:
            parts.append(next(source))
            size += len(parts[-1].split())
        found.append(" ".join(parts))
    return found
