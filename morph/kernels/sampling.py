"""Sample codes on the device, as ``frame/sampling.sample_static`` does, with its noise.

One program samples one token, without sorting. By the Gumbel-max trick, the sample is the token with the highest
score plus noise among the tokens within top-k and top-p. The number of scores above its own decides whether top-k
keeps it. If not, all tokens with a lower probability are excluded too, and the next-highest of the rest is tried.
Only top-p needs the probabilities of all that top-k keeps; bisection over the scores' bits finds their threshold.
Equal scores are ordered by token id, as in a stable sort.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..decode.rows import REPORT_WIDTH
from .pdl import launch_dependents, wait_for_inputs

LOWEST = tl.constexpr(-(2**31))  # below every score's key
WIDTH = tl.constexpr(REPORT_WIDTH)


@triton.jit
def mix(word):
    word = word ^ (word >> 16)
    word = word * 0x21F0AAAD
    word = word ^ (word >> 15)
    word = word * 0x735A2D97
    return word ^ (word >> 15)


@triton.jit
def random_words(keys, counter, tokens):
    """As ``noise.random_words``, of one line: ``keys`` points to its two words; ``counter`` is int64."""
    low = tl.load(keys).to(tl.uint32)
    high = tl.load(keys + 1).to(tl.uint32)
    count = counter.to(tl.uint32)
    first = mix(mix(count ^ low) + high)
    second = mix(mix(count + high) ^ low)
    return mix(mix(first + tokens.to(tl.uint32)) ^ second)


@triton.jit
def gumbel(words):
    uniform = ((words >> 9).to(tl.int32).to(tl.float32) + 0.5) * (1.0 / 8388608.0)
    return -tl.log(-tl.log(uniform))


@triton.jit
def sort_keys(scores):
    """Return integers above LOWEST in the order of float32 scores; the two zeros are equal."""
    bits = (scores + 0.0).to(tl.int32, bitcast=True)
    return tl.maximum(bits ^ ((bits >> 31) & 0x7FFFFFFF), LOWEST + 1)


@triton.jit
def kth_largest(keys, lowest, highest, kept, V: tl.constexpr):
    """Return a threshold that ``kept`` of V keys in ``lowest .. highest`` reach, or more if keys tie at it."""
    count = kept * 0 + V
    reached, missed = lowest, highest + 1  # at least ``kept`` keys reach the one, fewer the other
    while (reached + 1 < missed) & (count > kept):
        # The midpoint, rounded down, without overflow.
        middle = (reached & missed) + ((reached ^ missed) >> 1)
        found = tl.sum((keys >= middle).to(tl.int32), axis=0)
        enough = found >= kept
        reached = tl.where(enough, middle, reached)
        count = tl.where(enough, found, count)
        missed = tl.where(enough, missed, middle)
    return reached


@triton.jit
def kept_probabilities(scores, keys, tokens, real, kept, V: tl.constexpr):
    """Return the probabilities of what top-k keeps, else zeros; and the most probable token (the last, on ties)."""
    highest = tl.max(keys, axis=0)
    lowest = tl.min(tl.where(real, keys, highest), axis=0)
    best = tl.max(tl.where(real, scores, float("-inf")), axis=0)
    stays = real & (keys >= kth_largest(keys, lowest, highest, kept, V))
    probabilities = tl.where(stays, tl.exp(scores - best), 0.0)
    return probabilities / tl.sum(probabilities, axis=0), tl.max(tl.where(keys == highest, tokens, -1), axis=0)


@triton.jit
def best_token(ranks, keys, tokens, kept, probabilities, share, most_probable):
    """Return the token of the highest rank (the first, on ties), its key, and 1 if top-k and top-p keep it, or 0."""
    # Top-k keeps it if fewer than ``kept`` keys are above its own. Top-p keeps it if it and all tokens before it in
    # ascending (key, token) order have a total probability above ``share``, or if it is the most probable.
    token = tl.min(tl.where(ranks == tl.max(ranks, axis=0), tokens, tokens.shape[0]), axis=0)
    key = tl.max(tl.where(tokens == token, keys, LOWEST), axis=0)
    stays = (tl.sum((keys > key).to(tl.int32), axis=0) < kept).to(tl.int32)
    if share >= 0:
        upto = tl.where((keys < key) | ((keys == key) & (tokens <= token)), probabilities, 0.0)
        stays = stays * ((tl.sum(upto, axis=0) > share) | (token == most_probable)).to(tl.int32)
    return token, key, stays


@triton.jit
def divide(values, divisor):
    """Return ``values / divisor``, correctly rounded (Markstein's theorem), with one division for all values."""
    # The last bit may differ for the smallest numbers, whose remainder underflows.
    inverse = tl.div_rn(tl.full(values.shape, 1.0, tl.float32), divisor + tl.zeros_like(values))
    near = values * inverse
    exact = tl.fma(tl.fma(-near, divisor + tl.zeros_like(values), values), inverse, near)
    return tl.where(tl.abs(near) < float("inf"), exact, near)


@triton.jit
def sample_token(scores, noise, tokens, V: tl.constexpr, temperature, cutoff, share, scale):
    """Sample one token from float32 scores and Gumbel noise ``[padded V]``; ``scale`` is 1, or 0 for greedy."""
    # Top-k keeps V - ``cutoff`` tokens; top-p removes a total probability ``share``, negative if it is off.
    real = tokens < V
    scores = divide(scores, temperature)
    keys = tl.where(real, sort_keys(scores), LOWEST)
    kept = V - cutoff.to(tl.int32)
    probabilities = tl.zeros_like(scores)
    most_probable = kept * 0
    if share >= 0:
        probabilities, most_probable = kept_probabilities(scores, keys, tokens, real, kept, V)
    ranks = tl.where(real, sort_keys(scores + noise * scale), LOWEST)
    token, key, stays = kept * 0 - 1, kept * 0 + LOWEST, kept * 0
    while stays == 0:
        # Tokens below a rejected one in (key, token) order are rejected with it: this takes a few rounds only.
        ranks = tl.where((keys > key) | ((keys == key) & (tokens > token)), ranks, LOWEST)
        token, key, stays = best_token(ranks, keys, tokens, kept, probabilities, share, most_probable)
    # Stay within the vocabulary whatever the scores are: NaN must not become an address.
    return tl.minimum(token, V - 1)


@triton.jit
def flag_not_finite(logits, real, flag):
    """Set a flag (a pointer into the report) if any logit is NaN or infinite."""
    finite = (logits == logits) & (tl.abs(logits) != float("inf"))
    bad = tl.max((real & ~finite).to(tl.int32), axis=0)
    if bad > 0:
        tl.store(flag, 1)


@triton.jit(do_not_specialize=["first"])
def sample_codes(
    logits, line_keys, steps, temperatures, cutoffs, shares, scales, report, first,
    V: tl.constexpr, CODES: tl.constexpr, PADDED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Sample groups ``first ..`` of each line's frame into its report; program ``(line, group)``.

    Args:
        logits: float32 ``[B, groups, V]``.
        line_keys, steps: of ``frame.buffers.LineState``: int64 ``[B, 2]`` and ``[B]``.
        temperatures, cutoffs, shares, scales: of ``frame.sampling.SamplingTensors``, ``[B]``; see ``sample_token``.
        report: int64 ``[B, WIDTH]``, the frame's codes, then whether a logit was not finite.
    """
    line, group = tl.program_id(0), tl.program_id(1)
    tokens = tl.arange(0, PADDED)
    # Before the wait: state that changes only at a frame's end, and the noise.
    counter = tl.load(steps + line) * CODES + first + group
    noise = gumbel(random_words(line_keys + line * 2, counter, tokens))
    temperature, cutoff = tl.load(temperatures + line), tl.load(cutoffs + line)
    share, scale = tl.load(shares + line), tl.load(scales + line)
    # Uses the largest noise value, which is always finite: else the compiler would move the noise after the wait.
    inside = tokens < tl.where(tl.max(noise, axis=0) < float("inf"), V, 0)
    wait_for_inputs(PDL)
    launch_dependents(PDL)  # only now: see pdl.py
    scores = tl.load(logits + (line * tl.num_programs(1) + group) * V + tokens, mask=inside, other=0.0)
    token = sample_token(scores, noise, tokens, V, temperature, cutoff, share, scale)
    tl.store(report + line * WIDTH + first + group, token.to(tl.int64))
    flag_not_finite(scores, tokens < V, report + line * WIDTH + CODES)


@triton.jit
def sample_first(
    logits, line_keys, steps, minimums, positions, temperatures, cutoffs, shares, scales, penalties, seen,
    suppressed, is_eos, line_tokens, report,
    V: tl.constexpr, CODES: tl.constexpr, PADDED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """End each line's frame: report its group 0, count the frame, and sample group 0 of the next; program ``(line)``.

    ``logits`` is float32 ``[B, V]``, ``penalties`` ``[B]``, ``suppressed`` and ``is_eos`` bool ``[V]``; the rest as
    of ``sample_codes`` and ``frame.buffers.LineState``.
    """
    line = tl.program_id(0)
    tokens = tl.arange(0, PADDED)
    real = tokens < V
    # Before the wait: state that changes only at a frame's end, and the noise.
    step = tl.load(steps + line) + 1
    noise = gumbel(random_words(line_keys + line * 2, step * CODES, tokens))
    penalty = tl.load(penalties + line)
    was_seen = tl.load(seen + line * V + tokens, mask=real, other=0) != 0
    barred = tl.load(suppressed + tokens, mask=real, other=0) != 0
    barred = barred | ((tl.load(is_eos + tokens, mask=real, other=0) != 0) & (step < tl.load(minimums + line)))
    temperature, cutoff = tl.load(temperatures + line), tl.load(cutoffs + line)
    share, scale = tl.load(shares + line), tl.load(scales + line)
    sampled_before, position = tl.load(line_tokens + line), tl.load(positions + line)
    wait_for_inputs(PDL)
    launch_dependents(PDL)  # only now: see pdl.py
    scores = tl.load(logits + line * V + tokens, mask=real, other=0.0)
    flag_not_finite(scores, real, report + line * WIDTH + CODES)
    penalized = tl.where(scores < 0, scores * penalty, divide(scores, penalty))
    scores = tl.where(was_seen, penalized, scores)
    scores = tl.where(barred, float("-inf"), scores)
    token = sample_token(scores, noise, tokens, V, temperature, cutoff, share, scale)
    tl.store(report + line * WIDTH, sampled_before)
    tl.store(line_tokens + line, token.to(tl.int64))
    tl.store(seen + line * V + token, 1)
    tl.store(steps + line, step)
    tl.store(positions + line, position + 1)
