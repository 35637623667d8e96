"""Whose chunks the codec decodes next, where many lines are spoken at once.

A step of the codec costs as much as its size, a power of two of lines, whether a line has 12 frames in it or one. So
lines wait until their chunks are whole, unless their readers would run dry, and steps are filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 4  # of chunks that nobody waits for: fewer cost a step more than their share
MOST = 16  # lines of a step that nobody waits for: a line that comes waits for it
SHARE = 8  # or so many of all lines, if that is more: they are served once in twelve frames


@dataclass(frozen=True)
class Pace:
    """What a line's next chunk must be, where many lines share the codec.

    Args:
        first: frames of a line's first chunk.
        least: frames of a chunk, at least: smaller ones would play no longer than they take, if all lines had them.
        urgent_s: a reader with less sound than this must not wait longer.
        dry_s: and one with less than this takes a chunk of any size.
    """

    first: int
    least: int
    urgent_s: float
    dry_s: float


@dataclass(frozen=True)
class Claim:
    """What of one line could be decoded now.

    Args:
        line: its number.
        frames: how many.
        is_first: whether nothing of the line has been heard.
        is_urgent: whether it must not wait: its reader would run dry, or the line's row is free behind it.
        empty_at: when its reader has played everything; 0 if nothing has been made.
        steps: of the codec, for these frames; see ``LineCodec.steps``.
    """

    line: int
    frames: int
    is_first: bool = False
    is_urgent: bool = False
    empty_at: float = 0.0
    steps: int = 1


def choose(claims: Sequence[Claim], lines: int) -> list[Claim]:
    """Return the claims for the next step: all urgent ones, and others that fill it, the most pressing ones first.

    Args:
        claims: of lines that have been heard.
        lines: that share the codec.
    """
    urgent = [claim for claim in claims if claim.is_urgent]
    if not urgent and len(claims) < FEWEST:
        return []
    most = max(MOST, size_for(-(-lines // SHARE)))
    room = max(size_for(len(urgent)), min(_size_within(len(claims)), most))
    chosen, work = urgent, sum(claim.steps for claim in urgent)
    for claim in sorted((claim for claim in claims if not claim.is_urgent), key=lambda claim: claim.empty_at):
        # The next frame waits for all steps: those of lines that begin a chunk of the codec's are spread.
        if len(chosen) == room or work + claim.steps > max(most, room):
            break
        chosen, work = [*chosen, claim], work + claim.steps
    return chosen


def size_for(lines: int) -> int:
    """Return the smallest size of a step with room for so many lines, 0 for none."""
    return 1 << (lines - 1).bit_length() if lines else 0


def _size_within(lines: int) -> int:
    """Return the largest size that so many lines fill."""
    return 1 << (lines.bit_length() - 1) if lines else 0
