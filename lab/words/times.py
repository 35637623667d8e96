"""Compare word times by the alignment head with a recogniser's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from qwen3_tts_morph.morph.words.alignment import Trace, token_path
from qwen3_tts_morph.morph.words.timing import PiecePath, WordTime, line_words
from qwen3_tts_morph.postprocess.ends import quiet_times

from ..benchmarks.results import PartRow
from .record import TracedLine
from .transcribed import TranscribedWord, plain

NEAR_S = 0.2
SAMPLE_RATE = 24000


@dataclass(frozen=True)
class TimesRow(PartRow):
    """Errors of words' times against a recogniser's.

    Args:
        lines: SENTENCES or PARAGRAPHS.
        voices: "presets", "clones" or "icl clones".
        spoken: how many lines, ``compared``: those whose transcript equals the text.
        words: of these; the first word of a line is left out, as the recogniser lets it begin with the sound.
        lead_ms: the median of transcribed minus reported starts.
        median_ms, p95_ms, worst_ms: of the distance, without correcting the median.
        near_percent: of the words within NEAR_S.
        ends: words with punctuation after them, behind which a pause is likely; of their ends
        end_late_ms: the median of transcribed minus reported ones,
        end_p95_ms: of the distance.
        without_time: words without a length.
    """

    lines: str
    voices: str
    seq_groups: int
    spoken: int
    compared: int
    words: int
    lead_ms: float
    median_ms: float
    p95_ms: float
    worst_ms: float
    near_percent: float
    ends: int
    end_late_ms: float
    end_p95_ms: float
    without_time: int


@dataclass(frozen=True, eq=False)
class Errors:
    """Transcribed minus reported times of a line's words, in seconds.

    Args:
        starts: of all words but the first.
        ends: of words with punctuation after them.
        without_time: how many words have no length.
    """

    starts: np.ndarray
    ends: np.ndarray
    without_time: int


def line_times(pieces: Sequence[TracedLine], tokenizer: Any) -> tuple[WordTime, ...]:
    """Return the words of a line as the product finds them; its pieces follow one another."""
    paths, seconds = [], 0.0
    for piece in pieces:
        tokens = tuple(tokenizer.encode(piece.text, add_special_tokens=False).offsets)
        path = tuple(token_path(Trace(*piece.trace), len(tokens)))
        quiet = tuple(quiet_times(piece.waveform, SAMPLE_RATE))
        paths.append(PiecePath(piece.text, tokens, path, seconds, quiet))
        seconds += len(piece.waveform) / SAMPLE_RATE
    return line_words(" ".join(piece.text for piece in pieces), paths, seconds)


def time_errors(pieces: Sequence[TracedLine], transcribed: Sequence[TranscribedWord], tokenizer: Any) -> Errors | None:
    """Return how far a line's words are from the transcribed ones.

    None if the recogniser transcribed other words.
    """
    words = line_times(pieces, tokenizer)
    if [plain(word.text) for word in words] != [plain(word.word) for word in transcribed]:
        return None
    pairs = list(zip(words, transcribed, strict=True))
    return Errors(
        np.array([theirs.start - ours.start_s for ours, theirs in pairs[1:]]),
        np.array([theirs.end - ours.end_s for ours, theirs in pairs if not ours.text[-1].isalnum()]),
        sum(ours.start_s == ours.end_s for ours, _ in pairs),
    )


def summarise_times(errors: Sequence[Errors | None]) -> dict[str, Any]:
    """Return a row's figures from the errors of its lines."""
    compared = [one for one in errors if one is not None]
    late = 1000 * np.concatenate([np.zeros(0), *(one.starts for one in compared)])
    if not len(late):
        raise ValueError("no line was heard as it was asked for: speak more lines")
    far, ends = np.abs(late), 1000 * np.concatenate([one.ends for one in compared])
    return {
        "spoken": len(errors),
        "compared": len(compared),
        "words": len(late),
        "lead_ms": round(float(np.median(late)), 1) + 0.0,  # no -0.0
        "median_ms": round(float(np.median(far)), 1),
        "p95_ms": round(float(np.quantile(far, 0.95)), 1),
        "worst_ms": round(float(far.max()), 1),
        "near_percent": round(100 * float((far <= 1000 * NEAR_S + 1e-6).mean()), 2),
        "ends": len(ends),
        "end_late_ms": round(float(np.median(ends)), 1) + 0.0,
        "end_p95_ms": round(float(np.quantile(np.abs(ends), 0.95)), 1),
        "without_time": sum(one.without_time for one in compared),
    }
