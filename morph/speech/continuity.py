"""What a piece of a line goes on from: the last seconds of the piece before it, and the words that they say."""

from __future__ import annotations

import torch

from ..decode.decoded import Decoded
from ..model.model import Model
from ..options import FRAME_RATE, GenerateOptions
from ..text.duration import shortest_frames
from ..voice.prompt import Context
from ..voice.voice import Voice
from ..words.timing import match_words
from ..words.trace import Trace
from ..words.traced import TracedPiece
from .takes import ECHO, ENDS

# 4 s: with the voice's tags the prompt fits into 64 positions, the shortest prefill that is captured.
MOST_FRAMES = 50
# Without an alignment head nobody knows which words the last seconds say: a piece is taken whole, up to 10 s.
MOST_WHOLE_FRAMES = 125


def check_continuity(options: GenerateOptions, voice: Voice) -> None:
    """Raise ValueError for continuity with a voice that has no speaker: nothing would hold the timbre in its place."""
    if options.continuity and voice.kind == "design":
        raise ValueError(
            f"continuity is on and voice {voice.name!r} is a description, without a speaker that keeps each piece's "
            "timbre the same: turn continuity off, or clone the designed voice's speech and use that voice"
        )


def find_context(model: Model, text: str, decoded: Decoded) -> Context | None:
    """Return what the next piece goes on from, None if it should begin from the voice alone.

    That is where this piece went wrong, or where it is too long to be taken whole and it is not known what its last
    seconds say.

    Args:
        model: the checkpoint.
        text: of this piece, as it was spoken.
        decoded: its codes; ``ended`` also says if it went wrong otherwise.
    """
    codes, trace = decoded.codes, decoded.trace
    if decoded.ended not in (ENDS[0], ECHO) or not len(codes) or len(codes) < shortest_frames(text):
        return None
    if len(codes) <= MOST_FRAMES:
        return Context(codes, text)
    if trace is None or model.alignment is None or model.texts.backend is None:
        return Context(codes, text) if len(codes) <= MOST_WHOLE_FRAMES else None
    return _last_words(model, text, decoded, trace)


def behind_reference(voice: Voice, context: Context) -> Context:
    """Return what a piece's prompt goes on from: of an ICL voice its reference too, which keeps its manner of speaking.

    Without it each piece imitates the one before only: the voice drifted from its reference within six pieces.
    """
    if voice.ref_codes is None:
        return context
    return Context(torch.cat((voice.ref_codes, context.codes)), f"{voice.transcript} {context.text}")


def _last_words(model: Model, text: str, decoded: Decoded, trace: Trace) -> Context | None:
    """Return the last words that MOST_FRAMES hold; None if not one word begins in them."""
    assert model.alignment is not None
    spans = tuple(model.texts.spans(text))
    words, times = match_words(text, [TracedPiece(text, spans, trace).path], model.alignment.lead_s)
    first = len(decoded.codes) - MOST_FRAMES
    for word, time in zip(words, times, strict=True):
        if time is not None and (begin := int(time[0] * FRAME_RATE)) >= first and begin < len(decoded.codes):
            return Context(decoded.codes[begin:], text[word.first :])
    return None
