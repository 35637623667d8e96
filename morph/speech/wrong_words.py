"""Words of a piece that were skipped, said twice or invented, as its trace shows them; in words for people."""

from __future__ import annotations

from ..decode.decoded import Decoded
from ..model.model import Model
from ..options import IGNORE, GenerateOptions
from ..words.guard import WordGuard, find_fault
from ..words.said import said_tokens
from .word_times import check_word_times

LONGEST_QUOTE = 60  # characters
TELLING = {
    "skipped": "did not say {}",
    "repeated": "said {} again",
    "invented": "said something else after {}",
}


def check_followed(model: Model, options: GenerateOptions) -> None:
    """Raise ValueError for options that need to know which words are spoken, of a checkpoint that does not tell it."""
    if options.wrong_words == IGNORE:
        return
    try:
        check_word_times(model)
    except ValueError as error:
        raise ValueError(f"wrong_words is {options.wrong_words}: {error}, with wrong_words ignore") from error


def wrong_words(model: Model, text: str, decoded: Decoded) -> str:
    """Return what went wrong with the words of a take of ``text``, such as "did not say 'on the bridge'"; or "".

    Nothing is known without an alignment head, and of texts whose words have no spaces between them: there the guard
    was not measured. Only the first fault is named.
    """
    spans, words = _find_words(model, text)
    if (trace := decoded.trace) is None or not words:
        return ""
    frames = trace.tokens.tolist(), trace.weights.tolist()
    fault = find_fault(*frames, words, len(spans), decoded.ended == "eos")
    if fault is None:
        return ""
    return TELLING[fault.kind].format(_quote(text[spans[fault.first][0] : spans[fault.end - 1][1]]))


def follow_words(model: Model, text: str) -> WordGuard | None:
    """Return what follows the words of a piece while it is spoken; None where nothing is known of them."""
    spans, words = _find_words(model, text)
    return WordGuard(words, len(spans)) if model.alignment is not None and words else None


def _find_words(model: Model, text: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the characters of each token of a text, and the tokens of each word; none where nothing knows them."""
    spans = [] if model.texts.backend is None else model.texts.spans(text)
    return spans, said_tokens(text, spans)


def _quote(words: str) -> str:
    words = " ".join(words.split())
    return repr(words if len(words) <= LONGEST_QUOTE else words[: LONGEST_QUOTE - 3] + "...")
