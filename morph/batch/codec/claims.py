"""Whose chunks the codec decodes next, where many lines are spoken at once.

A step of the codec costs as much as its size, a power of two of lines, whether a line has 12 frames in it or one. So
lines wait until their chunks are whole, unless their readers would run dry, and steps are filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.sizes import power_above, power_below

FEWEST = 4  # of chunks that nobody waits for: fewer cost a step more than their share
MOST = 16  # lines of a step that nobody waits for: a line that comes waits for it
# Or an eighth of all lines, if that is more: each is then served within the twelve frames of its chunk.
SHARE = 8


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
        is_urgent: whether it must not wait: the player would run dry, or the line has finished decoding.
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
    most = max(MOST, power_above(-(-lines // SHARE)))
    room = max(power_above(len(urgent)), min(power_below(len(claims)), most))
    chosen, work = urgent.copy(), sum(claim.steps for claim in urgent)
    for claim in sorted((claim for claim in claims if not claim.is_urgent), key=lambda claim: claim.empty_at):
        work += claim.steps
        # The next frame waits for all steps: those of lines that begin a chunk of the codec's are spread.
        if len(chosen) == room or work > max(most, room):
            break
        chosen.append(claim)
    return chosen
