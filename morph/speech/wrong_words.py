"""Describe skipped, repeated or invented words of a piece, as its trace shows them."""

from __future__ import annotations

from ..decode.decoded import Decoded
from ..model.model import Model
from ..options import IGNORE, GenerateOptions
from ..words.guard import WordFault, WordGuard, said_tokens
from ..words.letters import find_by_letters, spell
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
    if (fault := find_wrong_words(model, text, decoded)) is None:
        return ""
    spans = model.texts.spans(text)
    return TELLING[fault.kind].format(_quote(text[spans[fault.first][0] : spans[fault.end - 1][1]]))


def find_wrong_words(model: Model, text: str, decoded: Decoded) -> WordFault | None:
    """Return a take's fault: by the letters of a complete line if the checkpoint has a table of them."""
    spans, words = _find_words(model, text)
    if (trace := decoded.trace) is None or not words:
        return None
    guard, ended = WordGuard(words, len(spans)), decoded.ended == "eos"
    faults = [guard.take(*frame) for frame in zip(trace.tokens.tolist(), trace.weights.tolist(), strict=True)]
    missing = guard.end() if ended else None
    letters, tokens = spell(text, spans)
    if model.letters is None or not ended or not len(letters):
        return next((fault for fault in faults if fault is not None), missing)
    return missing or find_by_letters(model.letters, decoded.codes[:, 0].numpy(), letters, tokens, trace)


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
