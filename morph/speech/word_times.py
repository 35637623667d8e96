"""Find the times of words, and skipped, repeated or invented ones, by the traces of pieces."""

from __future__ import annotations

import numpy as np

from ...postprocess.ends import MARGIN_S, quiet_spans
from ..decode.rows import Decoded
from ..model.model import Model
from ..options import IGNORE, GenerateOptions
from ..words.guard import WordFault, WordGuard, follow_text
from ..words.head import no_word_times
from ..words.letters import find_by_letters, spell
from ..words.path import token_path
from ..words.timing import PiecePath, WordTime, line_words, retime_words
from .lines import Spoken

LONGEST_QUOTE = 60  # characters
TELLING = {
    "skipped": "did not say {}",
    "repeated": "said {} again",
    "invented": "said something else after {}",
}


def check_word_times(model: Model) -> None:
    if model.alignment is None:
        raise ValueError(no_word_times(model.name))


def word_times(model: Model, spoken: Spoken) -> tuple[WordTime, ...]:
    """Return a line's words and their times in its waveform, at any speed, in order.

    () for a line without a trace: it failed, is from another program, or was cached before traces existed. Raises
    ValueError as ``check_word_times``, and for a trace of another text.
    """
    check_word_times(model)
    assert model.alignment is not None
    traced = [(span, span.trace) for span in spoken.spans if span.trace is not None]
    if not traced or len(traced) < len(spoken.spans):
        return ()
    rate, speed, report = spoken.sample_rate, spoken.speed, spoken.report
    pieces = []
    for span, trace in traced:
        # In seconds from its first frame at decoding speed
        cut_s, tokens = span.trimmed / rate, tuple(model.texts.spans(span.text))
        quiet = tuple(
            (cut_s + start * speed if start else 0.0, cut_s + end * speed)
            for start, end in quiet_times(spoken.waveform[span.start : span.end], rate)
        )
        path = tuple(token_path(trace, len(tokens)))
        pieces.append(PiecePath(span.text, tokens, path, span.start / rate * speed - cut_s, quiet))
    seconds = len(spoken.waveform) / rate * speed
    words = line_words(str(report.text), pieces, seconds, model.alignment.lead_s, report.readings)
    return retime_words(words, speed)


def quiet_times(waveform: np.ndarray, sample_rate: int) -> list[tuple[float, float]]:
    """Return where no words are audible, in seconds, in order.

    Weak sounds at the edges of speech are as quiet: MARGIN_S beside it counts as speech.
    """
    quiet = []
    for start, end in quiet_spans(waveform, sample_rate):
        first = start / sample_rate + (MARGIN_S if start else 0.0)
        last = end / sample_rate - (MARGIN_S if end < len(waveform) else 0.0)
        quiet.append((first, max(first, last)))
    return quiet


def check_followed(model: Model, options: GenerateOptions) -> None:
    """Raise ValueError if the options need word times and the checkpoint reports none."""
    if options.wrong_words != IGNORE and model.alignment is None:
        why = no_word_times(model.name)
        raise ValueError(f"wrong_words is {options.wrong_words}: {why}, with wrong_words ignore")


def wrong_words(model: Model, text: str, decoded: Decoded) -> str:
    """Return what is wrong with a take's words, such as "did not say 'on the bridge'"; or "".

    Only the first fault is named. Nothing is known without an alignment head, or for texts without spaces between
    words: the check was not measured there.
    """
    if (fault := find_wrong_words(model, text, decoded)) is None:
        return ""
    spans = model.texts.spans(text)
    words = " ".join(text[spans[fault.first][0] : spans[fault.end - 1][1]].split())
    return TELLING[fault.kind].format(
        repr(words if len(words) <= LONGEST_QUOTE else words[: LONGEST_QUOTE - 3] + "...")
    )


def find_wrong_words(model: Model, text: str, decoded: Decoded) -> WordFault | None:
    """Return a take's fault: by the letters of a complete line if the checkpoint has a table of them."""
    spans, trace, ended = model.texts.spans(text), decoded.trace, decoded.ended == "eos"
    if trace is None or (guard := follow_text(text, spans)) is None:
        return None
    faults = [guard.take(*frame) for frame in zip(trace.tokens.tolist(), trace.weights.tolist(), strict=True)]
    missing = guard.end() if ended else None
    letters, tokens = spell(text, spans)
    if model.letters is None or not ended or not len(letters):
        return next((fault for fault in faults if fault is not None), missing)
    return missing or find_by_letters(model.letters, decoded.codes[:, 0].numpy(), letters, tokens, trace)


def follow_words(model: Model, text: str) -> WordGuard | None:
    """Return a guard for the words of a piece while it is spoken; None if nothing is known of them."""
    return None if model.alignment is None else follow_text(text, model.texts.spans(text))
