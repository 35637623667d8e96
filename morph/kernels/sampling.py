"""Draw codes from logits on the device, as ``static_sampling.sample_static`` does, with ``noise.py``'s noise.

One program draws one token. It does not sort: the likeliest token with its noise is the draw, if top-k keeps it, and
that is known by counting the tokens above it. If not, no token that is likelier gone is asked again. Only top-p needs
the chances of all that top-k keeps, for which its threshold is found by bisection over the scores' bits. Equal scores
are ordered by token, as a stable sort leaves them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .pdl import launch_dependents, wait_for_inputs

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
    """Integers above LOWEST in the order of float32 scores; the two zeros are equal."""
    bits = (scores + 0.0).to(tl.int32, bitcast=True)
    return tl.maximum(bits ^ ((bits >> 31) & 0x7FFFFFFF), LOWEST + 1)


@triton.jit
def kth_largest(keys, lowest, highest, kept, V: tl.constexpr):
    """A threshold that ``kept`` of V keys reach, or as few more as equal keys make necessary.

    ``lowest`` and ``highest`` are the smallest and the largest key.
    """
    count = kept * 0 + V
    reached, missed = lowest, highest + 1  # thresholds that at least, and less than, so many reach
    while (reached + 1 < missed) & (count > kept):
        middle = (reached & missed) + ((reached ^ missed) >> 1)  # half-way, rounded down, without overflow
        found = tl.sum((keys >= middle).to(tl.int32), axis=0)
        enough = found >= kept
        reached = tl.where(enough, middle, reached)
        count = tl.where(enough, found, count)
        missed = tl.where(enough, missed, middle)
    return reached


@triton.jit
def kept_chances(scores, keys, tokens, real, kept, V: tl.constexpr):
    """The chances of what top-k keeps, zeros elsewhere; and the likeliest token (of equals the last)."""
    highest = tl.max(keys, axis=0)
    lowest = tl.min(tl.where(real, keys, highest), axis=0)
    best = tl.max(tl.where(real, scores, float("-inf")), axis=0)
    stays = real & (keys >= kth_largest(keys, lowest, highest, kept, V))
    chances = tl.where(stays, tl.exp(scores - best), 0.0)
    return chances / tl.sum(chances, axis=0), tl.max(tl.where(keys == highest, tokens, -1), axis=0)


@triton.jit
def best_token(ranks, keys, tokens, kept, chances, share, likeliest):
    """The token of the highest rank (of equals the first), its key, and whether top-k and top-p keep it (1 or 0).

    Top-k does when fewer than ``kept`` keys are above its own; top-p when it and what comes before it in the order of
    (key, token) have more than ``share`` of the chances, or none comes behind it.
    """
    token = tl.min(tl.where(ranks == tl.max(ranks, axis=0), tokens, tokens.shape[0]), axis=0)
    key = tl.max(tl.where(tokens == token, keys, LOWEST), axis=0)
    stays = (tl.sum((keys > key).to(tl.int32), axis=0) < kept).to(tl.int32)
    if share >= 0:
        upto = tl.where((keys < key) | ((keys == key) & (tokens <= token)), chances, 0.0)
        stays = stays * ((tl.sum(upto, axis=0) > share) | (token == likeliest)).to(tl.int32)
    return token, key, stays


@triton.jit
def divide(values, divisor):
    """``values / divisor``, rounded as IEEE says (Markstein's theorem), without a division for each.

    But for the smallest of numbers: where the remainder underflows, the last bit may differ.
    """
    inverse = tl.div_rn(tl.full(values.shape, 1.0, tl.float32), divisor + tl.zeros_like(values))
    near = values * inverse
    exact = tl.fma(tl.fma(-near, divisor + tl.zeros_like(values), values), inverse, near)
    return tl.where(tl.abs(near) < float("inf"), exact, near)


@triton.jit
def draw_token(scores, noise, tokens, V: tl.constexpr, temperature, place, share, scale):
    """One draw from float32 scores ``[padded V]``; arguments as of ``sample_static``, for one line."""
    real = tokens < V
    scores = divide(scores, temperature)
    keys = tl.where(real, sort_keys(scores), LOWEST)
    kept = V - place.to(tl.int32)
    chances = tl.zeros_like(scores)
    likeliest = kept * 0
    if share >= 0:
        chances, likeliest = kept_chances(scores, keys, tokens, real, kept, V)
    ranks = tl.where(real, sort_keys(scores + noise * scale), LOWEST)
    token, key, stays = kept * 0 - 1, kept * 0 + LOWEST, kept * 0
    while stays == 0:
        # What comes before a token that goes, goes with it: a few rounds whatever the scores are.
        ranks = tl.where((keys > key) | ((keys == key) & (tokens > token)), ranks, LOWEST)
        token, key, stays = best_token(ranks, keys, tokens, kept, chances, share, likeliest)
    # Within the vocabulary whatever the scores are: NaN must not become an address.
    return tl.minimum(token, V - 1)


@triton.jit
def note_not_finite(logits, real, report, place):
    """Remember at a place of the report that logits are NaN or infinite."""
    finite = (logits == logits) & (tl.abs(logits) != float("inf"))
    bad = tl.max((real & ~finite).to(tl.int32), axis=0)
    if bad > 0:
        tl.store(report + place, 1)


@triton.jit(do_not_specialize=["first"])
def draw_codes(
    logits, line_keys, steps, temperatures, places, shares, scales, report, first,
    V: tl.constexpr, CODES: tl.constexpr, PADDED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Draw groups ``first ..`` of each line's frame into its report; program ``(line, group)``.

    Args:
        logits: float32 ``[B, groups, V]``.
        line_keys, steps: of ``slots.LineState``: ``[B, 2]`` and ``[B]``, int64.
        temperatures, places, shares, scales: of ``SamplingTensors``, ``[B]``.
        report: int64 ``[B, CODES + 1]``, the frame's codes and whether a logit was not finite.
    """
    line, group = tl.program_id(0), tl.program_id(1)
    tokens = tl.arange(0, PADDED)
    # What only a frame's end changes is read before the wait.
    counter = tl.load(steps + line) * CODES + first + group
    noise = gumbel(random_words(line_keys + line * 2, counter, tokens))
    temperature, place = tl.load(temperatures + line), tl.load(places + line)
    share, scale = tl.load(shares + line), tl.load(scales + line)
    # The largest is asked for, or the compiler would leave the noise for behind the wait. It is finite.
    inside = tokens < tl.where(tl.max(noise, axis=0) < float("inf"), V, 0)
    wait_for_inputs(PDL)
    launch_dependents(PDL)  # not before: see wait.py
    scores = tl.load(logits + (line * tl.num_programs(1) + group) * V + tokens, mask=inside, other=0.0)
    token = draw_token(scores, noise, tokens, V, temperature, place, share, scale)
    tl.store(report + line * (CODES + 1) + first + group, token.to(tl.int64))
    note_not_finite(scores, tokens < V, report + line * (CODES + 1), CODES)


@triton.jit
def draw_first(
    logits, line_keys, steps, minimums, positions, temperatures, places, shares, scales, penalties, seen, suppressed,
    is_eos, line_tokens, report,
    V: tl.constexpr, CODES: tl.constexpr, PADDED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """End each line's frame: report its group 0, count it, and draw group 0 of the next; program ``(line)``.

    Args:
        logits: float32 ``[B, V]``.
        minimums, positions, penalties, seen, line_tokens, and the rest as of ``draw_codes``: of ``slots.LineState``.
        suppressed, is_eos: bool ``[V]``.
    """
    line = tl.program_id(0)
    tokens = tl.arange(0, PADDED)
    real = tokens < V
    # What only a frame's end changes is read before the wait.
    step = tl.load(steps + line) + 1
    noise = gumbel(random_words(line_keys + line * 2, step * CODES, tokens))
    penalty = tl.load(penalties + line)
    was_seen = tl.load(seen + line * V + tokens, mask=real, other=0) != 0
    barred = tl.load(suppressed + tokens, mask=real, other=0) != 0
    barred = barred | (
        (tl.load(is_eos + tokens, mask=real, other=0) != 0) & (step < tl.load(minimums + line))
    )
    temperature, place = tl.load(temperatures + line), tl.load(places + line)
    share, scale = tl.load(shares + line), tl.load(scales + line)
    drawn_before, position = tl.load(line_tokens + line), tl.load(positions + line)
    wait_for_inputs(PDL)
    launch_dependents(PDL)  # not before: see wait.py
    scores = tl.load(logits + line * V + tokens, mask=real, other=0.0)
    note_not_finite(scores, real, report + line * (CODES + 1), CODES)
    penalized = tl.where(scores < 0, scores * penalty, divide(scores, penalty))
    scores = tl.where(was_seen, penalized, scores)
    scores = tl.where(barred, float("-inf"), scores)
    token = draw_token(scores, noise, tokens, V, temperature, place, share, scale)
    tl.store(report + line * (CODES + 1), drawn_before)
    tl.store(line_tokens + line, token.to(tl.int64))
    tl.store(seen + line * V + token, 1)
    tl.store(steps + line, step)
    tl.store(positions + line, position + 1)
