"""Describe skipped, repeated or invented words of a piece, as its trace shows them."""

from __future__ import annotations

from ..decode.decoded import Decoded
from ..model.model import Model
from ..options import IGNORE, GenerateOptions
from ..words.guard import WordGuard, find_fault, said_tokens
from .word_times import check_word_times

LONGEST_QUOTE = 60  # characters
TELLING = {
    "skipped": "did not say {}",
    "repeated": "said {} again",
    "invented": "said something else after {}",
}


def check_followed(model: Model, options: GenerateOptions) -> None:
    """Raise ValueError if the options need word times and the checkpoint reports none."""
    if options.wrong_words == IGNORE:
        return
    try:
        check_word_times(model)
    except ValueError as error:
        raise ValueError(f"wrong_words is {options.wrong_words}: {error}, with wrong_words ignore") from error


def wrong_words(model: Model, text: str, decoded: Decoded) -> str:
    """Return what went wrong with a take's words, such as "did not say 'on the bridge'"; or "".

    Only the first fault is named. Nothing is known without an alignment head, or for texts without spaces between
    words: the check was not measured there.
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
    """Return a guard for the words of a piece while it is spoken; None if nothing is known of them."""
    spans, words = _find_words(model, text)
    return WordGuard(words, len(spans)) if model.alignment is not None and words else None


def _find_words(model: Model, text: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return each token's characters, and each word's tokens."""
    spans = model.texts.spans(text)
    return spans, said_tokens(text, spans)


def _quote(words: str) -> str:
    words = " ".join(words.split())
    return repr(words if len(words) <= LONGEST_QUOTE else words[: LONGEST_QUOTE - 3] + "...")
