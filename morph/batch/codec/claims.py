"""Choose whose chunks the codec decodes next, when many lines share it.

A codec step costs as much as its size, a power of two of lines, with 12 frames per line or one. So lines wait
for full chunks, unless their readers would run dry, and steps are filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.sizes import power_above, power_below

# Chunks without urgency in a step, at least: fewer cost more than their share.
FEWEST = 4
# Lines without urgency in a step, at most: a new line waits for the step.
MOST = 16
# Or an eighth of all lines, if that is more: each is then served within the twelve frames of its chunk.
SHARE = 8


@dataclass(frozen=True)
class Pace:
    """Limits for a line's next chunk when many lines share the codec."""

    first: int  # frames of a line's first chunk
    least: int  # fewest frames that play longer than they take, if all lines have such chunks
    urgent_s: float  # a reader with less buffered audio must not wait longer
    dry_s: float  # a reader with less gets a chunk of any size


@dataclass(frozen=True)
class Claim:
    """The frames of one line that could be decoded now."""

    line: int  # its number in the codec
    frames: int
    is_first: bool = False  # nothing of the line has been delivered
    is_urgent: bool = False  # its player would run dry, or the line has finished decoding
    empty_at: float = 0.0  # when its reader has played everything; 0 before the first audio
    steps: int = 1  # of the codec; see ``LineCodec.steps``


def choose(claims: Sequence[Claim], lines: int) -> list[Claim]:
    """Return the claims for the next step: all urgent claims, then the most pressing claims of started lines."""
    urgent = [claim for claim in claims if claim.is_urgent]
    if not urgent and len(claims) < FEWEST:
        return []
    most = max(MOST, power_above(-(-lines // SHARE)))
    room = max(power_above(len(urgent)), min(power_below(len(claims)), most))
    chosen, work = urgent.copy(), sum(claim.steps for claim in urgent)
    for claim in sorted((claim for claim in claims if not claim.is_urgent), key=lambda claim: claim.empty_at):
        work += claim.steps
        # The next frame waits for all steps, so lines that need several are spread over turns.
        if len(chosen) == room or work > max(most, room):
            break
        chosen.append(claim)
    return chosen
