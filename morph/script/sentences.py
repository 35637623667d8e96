"""Make one caption per sentence, at the time at which it is spoken.

Pieces have exact times. Within a piece, sentences are separated at a pause near the place that their character counts
suggest; without one, both stay in one caption.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ...postprocess.ends import quiet_spans, speech_span
from ...postprocess.join import Span
from ..speech.lines import PieceSpan, Spoken
from ..speech.takes import ERROR
from ..text.pronunciation import shown_text
from ..text.scripts.cues import Cue
from ..text.split import split_sentences

REACH = 0.5  # how far a pause may be from the expected place, relative to the shorter sentence


@dataclass(frozen=True)
class _Segment:
    """A part of a line that ends at a piece's end or a pause between sentences."""

    letters: int
    start: int
    end: int


def _cue(start: int, spoken: Spoken, text: str, part: Span) -> Cue:
    begin, end = part
    rate = spoken.sample_rate
    edges = speech_span(spoken.waveform[begin:end], rate)
    # To the nearest millisecond, halves up, in integers: floats would round some halves down.
    first, last = ((2000 * (start + begin + edge) + rate) // (2 * rate) for edge in edges)
    return Cue(first, last, text, spoken.report.name)


def cues_of(lines: Sequence[Spoken], starts: Sequence[int], sentences: bool = False) -> list[Cue]:
    """Return the captions of a track, ordered by time; see ``captions_of``. Failed lines have none."""
    cues = [
        cue
        for start, one in zip(starts, lines, strict=True)
        if one.report.ended != ERROR
        for cue in captions_of(start, one, sentences)
    ]
    return sorted(cues, key=lambda cue: cue.start_ms)


def captions_of(start: int, spoken: Spoken, sentences: bool = False) -> list[Cue]:
    """Return the caption of a line whose first sample is ``start``, or one per sentence if its pieces are known."""
    if not (sentences and spoken.spans):
        return [_cue(start, spoken, shown_text(spoken.report.text), (0, len(spoken.waveform)))]
    parts = [part for span in spoken.spans for part in _parts(spoken, span)]
    return [_cue(start, spoken, text, span) for text, span in _join(parts, *_sentences(spoken))]


def _letters(text: str) -> int:
    # Pieces may have other punctuation and spaces than the text.
    return sum(char.isalnum() for char in text)


def _sentences(spoken: Spoken) -> tuple[list[str], list[str]]:
    """Return the sentences as spoken, and as shown: as written, if the counts agree."""
    written = split_sentences(shown_text(spoken.report.text))
    said = split_sentences(spoken.report.spoken) if spoken.report.spoken else written
    return said, written if len(written) == len(said) else said


def _join(parts: Sequence[_Segment], said: Sequence[str], shown: Sequence[str]) -> Iterator[tuple[str, Span]]:
    """Yield texts of whole sentences with their samples: parts are joined until one ends with a sentence."""
    ends = {letters: count for count, letters in enumerate(accumulate(map(_letters, said)), start=1)}
    done, begin = 0, parts[0].start
    totals = list(accumulate(part.letters for part in parts))
    for number, (part, total) in enumerate(zip(parts, totals, strict=True), start=1):
        count = len(said) if number == len(parts) else ends.get(total, done)
        if count > done:
            yield " ".join(shown[done:count]), (begin, part.end)
            done, begin = count, parts[min(number, len(parts) - 1)].start


def _parts(spoken: Spoken, piece: PieceSpan) -> list[_Segment]:
    begin, end, sentences = piece.start, piece.end, split_sentences(piece.text)
    quiet = quiet_spans(spoken.waveform[begin:end], spoken.sample_rate)
    pauses = [(start, stop) for start, stop in quiet if start > 0 and stop < end - begin]
    lengths = [len(sentence) for sentence in sentences]
    expected = [total / sum(lengths) * (end - begin) for total in accumulate(lengths)][:-1]
    parts: list[_Segment] = []
    waiting, last = [sentences[0]], 0
    for sentence, place, (before, after) in zip(sentences[1:], expected, pairwise(lengths), strict=True):
        reach = REACH * min(before, after) / sum(lengths) * (end - begin)
        near = [(stop - start, start + stop) for start, stop in pauses if abs((start + stop) / 2 - place) <= reach]
        if near and max(near)[1] // 2 > last:
            parts.append(_Segment(_letters("".join(waiting)), begin + last, begin + max(near)[1] // 2))
            waiting, last = [], max(near)[1] // 2
        waiting.append(sentence)
    return [*parts, _Segment(_letters("".join(waiting)), begin + last, end)]
