"""Draw codes from logits on the device, as ``static_sampling.draw_static`` does, with ``noise.py``'s noise.

One program draws one token. It does not sort: which tokens top-k and top-p keep follows from thresholds, which are
found by bisection over the scores' bits, counting (or adding up chances) instead of ordering. Equal scores are
ordered by token, as a stable sort leaves them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .wait import launch_dependents, wait_for_inputs

LOWEST = tl.constexpr(-(2**31))  # below every score's key


@triton.jit
def mix(word):
    """``noise.mix``: scramble 32-bit words (uint32)."""
    word = word ^ (word >> 16)
    word = word * 0x21F0AAAD
    word = word ^ (word >> 15)
    word = word * 0x735A2D97
    return word ^ (word >> 15)


@triton.jit
def random_words(keys, counter, tokens):
    """``noise.random_words`` of one line: keys points to its two words; counter is int64."""
    low = tl.load(keys).to(tl.uint32)
    high = tl.load(keys + 1).to(tl.uint32)
    count = counter.to(tl.uint32)
    first = mix(mix(count ^ low) + high)
    second = mix(mix(count + high) ^ low)
    return mix(mix(first + tokens.to(tl.uint32)) ^ second)


@triton.jit
def gumbel(words):
    """``noise.gumbel_noise`` from its words."""
    uniform = ((words >> 9).to(tl.int32).to(tl.float32) + 0.5) * (1.0 / 8388608.0)
    return -tl.log(-tl.log(uniform))


@triton.jit
def sort_keys(scores):
    """Integers in the order of float32 scores; the two zeros are equal."""
    bits = (scores + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _middle(low, high):
    """Half-way between two integers, rounded down, without overflow."""
    return (low & high) + ((low ^ high) >> 1)


@triton.jit
def kth_largest(keys, lowest, highest, place, V):
    """A threshold that all but ``place`` of V keys reach, or as few more as equal keys make necessary.

    ``lowest`` and ``highest`` are the smallest and the largest key.
    """
    kept = V - place
    count = kept + place
    reached, missed = lowest, highest + 1  # thresholds that at least, and less than, so many reach
    while (reached + 1 < missed) & (count > kept):
        middle = _middle(reached, missed)
        found = tl.sum((keys >= middle).to(tl.int32), axis=0)
        enough = found >= kept
        reached = tl.where(enough, middle, reached)
        count = tl.where(enough, found, count)
        missed = tl.where(enough, missed, middle)
    return reached


@triton.jit
def keep_top_p(keys, lowest, highest, chances, share, tokens):
    """Which tokens stay when those that make up the unlikeliest ``share`` go; the likeliest (of equals: last) stays."""
    gone, stays = tl.maximum(lowest, LOWEST + 1) - 1, highest  # keys up to `gone` go altogether
    while gone + 1 < stays:
        middle = _middle(gone, stays)
        below = tl.sum(tl.where(keys <= middle, chances, 0.0), axis=0)
        goes = below <= share
        gone = tl.where(goes, middle, gone)
        stays = tl.where(goes, stays, middle)
    below = tl.sum(tl.where(keys < stays, chances, 0.0), axis=0)
    equal = keys == stays
    upto = below + tl.cumsum(tl.where(equal, chances, 0.0), axis=0)
    last = tl.max(tl.where(keys == highest, tokens, -1), axis=0)
    return (keys > stays) | (equal & (upto > share)) | (tokens == last)


@triton.jit
def draw_token(scores, noise, tokens, V: tl.constexpr, temperature, place, share, scale):
    """One draw from float32 scores ``[padded V]``; arguments as of ``draw_static``, for one line."""
    real = tokens < V
    scores = tl.div_rn(scores, temperature + tl.zeros_like(scores))
    keys = tl.where(real, sort_keys(scores), LOWEST)
    highest = tl.max(keys, axis=0)
    lowest = tl.min(tl.where(real, keys, highest), axis=0)
    kept = real & (keys >= kth_largest(keys, lowest, highest, place.to(tl.int32), V))
    if share >= 0:
        best = tl.max(tl.where(real, scores, float("-inf")), axis=0)
        chances = tl.where(kept, tl.exp(scores - best), 0.0)
        chances /= tl.sum(chances, axis=0)
        kept &= keep_top_p(tl.where(kept, keys, LOWEST), lowest, highest, chances, share, tokens)
    chances = tl.where(kept, scores + noise * scale, float("-inf"))
    # Within the vocabulary whatever the scores are: NaN must not become an address.
    return tl.minimum(tl.argmax(chances, axis=0, tie_break_left=True), V - 1)


@triton.jit
def note_overflow(logits, real, report, overflow):
    """Remember in the report that logits have overflowed in fp16; ``overflow`` is its place."""
    finite = (logits == logits) & (tl.abs(logits) != float("inf"))
    bad = tl.max((real & ~finite).to(tl.int32), axis=0)
    if bad > 0:
        tl.store(report + overflow, 1)


@triton.jit(do_not_specialize=["first"])
def draw_codes(
    logits, line_keys, steps, temperatures, places, shares, scales, report, first,
    V: tl.constexpr, CODES: tl.constexpr, PADDED: tl.constexpr, HALF: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Draw groups ``first ..`` of each line's frame into its report; program ``(line, group)``.

    Args:
        logits: float32 ``[B, groups, V]``.
        line_keys, steps: of ``slots.LineState``: ``[B, 2]`` and ``[B]``, int64.
        temperatures, places, shares, scales: of ``DrawTensors``, ``[B]``.
        report: int64 ``[B, CODES + 1]``, the frame's codes and the overflow mark.
    """
    launch_dependents(PDL)
    line, group = tl.program_id(0), tl.program_id(1)
    tokens = tl.arange(0, PADDED)
    # What only a frame's end changes is read before the wait.
    counter = tl.load(steps + line) * CODES + first + group
    noise = gumbel(random_words(line_keys + line * 2, counter, tokens))
    temperature, place = tl.load(temperatures + line), tl.load(places + line)
    share, scale = tl.load(shares + line), tl.load(scales + line)
    wait_for_inputs(PDL)
    scores = tl.load(logits + (line * tl.num_programs(1) + group) * V + tokens, mask=tokens < V, other=0.0)
    token = draw_token(scores, noise, tokens, V, temperature, place, share, scale)
    tl.store(report + line * (CODES + 1) + first + group, token.to(tl.int64))
    if HALF:
        note_overflow(scores, tokens < V, report + line * (CODES + 1), CODES)


@triton.jit
def draw_first(
    logits, line_keys, steps, positions, temperatures, places, shares, scales, penalties, seen, suppressed, is_eos,
    line_tokens, report,
    V: tl.constexpr, CODES: tl.constexpr, MIN_STEPS: tl.constexpr, PADDED: tl.constexpr, HALF: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """End each line's frame: report its group 0, count it, and draw group 0 of the next; program ``(line)``.

    Args:
        logits: float32 ``[B, V]``.
        positions, penalties, seen, line_tokens, and the rest as of ``draw_codes``: of ``slots.LineState``.
        suppressed, is_eos: bool ``[V]``.
        MIN_STEPS: frames before which a line may not end.
    """
    launch_dependents(PDL)
    wait_for_inputs(PDL)
    line = tl.program_id(0)
    tokens = tl.arange(0, PADDED)
    real = tokens < V
    step = tl.load(steps + line) + 1
    noise = gumbel(random_words(line_keys + line * 2, step * CODES, tokens))
    scores = tl.load(logits + line * V + tokens, mask=real, other=0.0)
    if HALF:
        note_overflow(scores, real, report + line * (CODES + 1), CODES)
    penalty = tl.load(penalties + line) + tl.zeros_like(scores)
    penalized = tl.where(scores < 0, scores * penalty, tl.div_rn(scores, penalty))
    was_seen = tl.load(seen + line * V + tokens, mask=real, other=0) != 0
    scores = tl.where(was_seen, penalized, scores)
    barred = tl.load(suppressed + tokens, mask=real, other=0) != 0
    eos = tl.load(is_eos + tokens, mask=real, other=0) != 0
    scores = tl.where(barred | (eos & (step < MIN_STEPS)), float("-inf"), scores)
    token = draw_token(
        scores, noise, tokens, V, tl.load(temperatures + line), tl.load(places + line), tl.load(shares + line),
        tl.load(scales + line),
    )  # fmt: skip
    tl.store(report + line * (CODES + 1), tl.load(line_tokens + line))
    tl.store(line_tokens + line, token.to(tl.int64))
    tl.store(seen + line * V + token, 1)
    tl.store(steps + line, step)
    tl.store(positions + line, tl.load(positions + line) + 1)
