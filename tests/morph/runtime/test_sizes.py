"""Powers of two next to a count."""

from qwen3_tts_morph.morph.runtime.sizes import power_above, power_below


def test_powers_of_two_next_to_a_count():
    counts = (0, 1, 2, 3, 4, 5, 63, 64, 65)
    assert [power_above(count) for count in counts] == [0, 1, 2, 4, 4, 8, 64, 64, 128]
    assert [power_below(count) for count in counts] == [0, 1, 2, 2, 4, 4, 32, 64, 64]
