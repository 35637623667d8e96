"""The counter-based noise: the same wherever it is computed, uniform, independent, and Gumbel-distributed."""

import pytest
import torch
from qwen3_tts_morph.morph.frame import sampling as noise
from qwen3_tts_morph.morph.frame.sampling import gumbel_noise, line_keys, mix, random_words

WORD = 2**32 - 1


def plain_mix(word: int) -> int:
    word ^= word >> 16
    word = word * 0x21F0AAAD % 2**32
    word ^= word >> 15
    word = word * 0x735A2D97 % 2**32
    return word ^ word >> 15


def plain_word(low: int, high: int, counter: int, token: int) -> int:
    first = plain_mix((plain_mix(counter ^ low) + high) % 2**32)
    second = plain_mix(plain_mix((counter + high) % 2**32) ^ low)
    return plain_mix(plain_mix((first + token) % 2**32) ^ second)


def words(seeds: list[int], counters: list[int], width: int) -> torch.Tensor:
    return random_words(line_keys(seeds), torch.tensor([counters] * len(seeds)), width)


def test_words_equal_those_of_unbounded_integers():
    """No product of the int64 version overflows, also for the largest words."""
    largest = torch.tensor([0, 1, 2**31, WORD - 1, WORD])
    assert mix(largest).tolist() == [plain_mix(word) for word in largest.tolist()]
    keys, counters = line_keys([7, 2**64 - 1]), [0, 5, 16 * 8192 + 15]
    sampled = words([7, 2**64 - 1], counters, 9)
    for row, (low, high) in enumerate(keys.tolist()):
        for index, counter in enumerate(counters):
            wanted = [plain_word(low, high, counter, token) for token in range(9)]
            assert sampled[row, index].tolist() == wanted


def test_a_word_does_not_depend_on_the_batch_nor_on_the_number_of_tokens():
    together = words([3, 4, 5], [16, 17, 18], 64)
    assert torch.equal(words([4], [17], 20)[0, 0], together[1, 1, :20])


def test_a_seed_is_taken_modulo_64_bits_and_other_seeds_differ():
    keys = line_keys([1, 2, 1 + 2**64, -1, 2**64 - 1])
    assert keys[0].tolist() == keys[2].tolist() and keys[3].tolist() == keys[4].tolist()
    assert len({tuple(key) for key in keys.tolist()}) == 3
    assert len({tuple(key) for key in line_keys(range(5000)).tolist()}) == 5000


def test_no_two_samples_of_a_line_share_a_word():
    sampled = words([0], list(range(16 * 200)), 2)
    assert len({tuple(pair) for pair in sampled[0].tolist()}) == 16 * 200


def uniform(seeds: list[int], counters: list[int], width: int) -> torch.Tensor:
    return words(seeds, counters, width).double() / 2**32


@pytest.mark.parametrize("bits", [8, 1], ids=["high bits", "halves"])
def test_words_are_uniform(bits):
    """Chi squared over 2**bits bins, six standard deviations wide."""
    sampled = words([0, 1, 2, 3], list(range(64)), 2048) >> (32 - bits)
    counts = sampled.flatten().bincount(minlength=2**bits).double()
    expected = sampled.numel() / 2**bits
    chi, free = float(((counts - expected) ** 2 / expected).sum()), 2**bits - 1
    assert abs(chi - free) < 6 * (2 * free) ** 0.5


@pytest.mark.parametrize("shift", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1), (0, 16, 0)])
def test_neighbouring_tokens_groups_frames_and_seeds_are_uncorrelated(shift):
    sampled = uniform(list(range(8)), list(range(48)), 512) - 0.5
    seeds, counters, tokens = shift
    one = sampled[: 8 - seeds, : 48 - counters, : 512 - tokens].flatten()
    other = sampled[seeds:, counters:, tokens:].flatten()
    correlation = float((one * other).mean() * 12)
    assert abs(correlation) < 6 / len(one) ** 0.5


def test_the_argmax_of_log_probabilities_plus_noise_is_a_sample():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -3.0, 1.0])
    sampled = gumbel_noise(line_keys(range(40)), torch.arange(2000).expand(40, -1), 6) + logits
    counts = sampled.argmax(-1).flatten().bincount(minlength=6).double()
    expected = logits.double().softmax(-1) * 40 * 2000
    assert float(((counts - expected) ** 2 / expected).sum()) < 5 + 6 * 10**0.5


def test_the_extreme_words_give_finite_noise(monkeypatch):
    extremes = torch.tensor([[[0, WORD]]])
    monkeypatch.setattr(noise, "random_words", lambda *_: extremes)
    low, high = gumbel_noise(torch.zeros(1, 2), torch.zeros(1, 1), 2)[0, 0].tolist()
    assert -3 < low < -2.5 and 16 < high < 17
