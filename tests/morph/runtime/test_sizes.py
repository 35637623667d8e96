"""Powers of two next to a count."""

from qwen3_tts_morph.morph.runtime.sizes import next_power_of_2, previous_power_of_2


def test_powers_of_two_next_to_a_count():
    counts = (0, 1, 2, 3, 4, 5, 63, 64, 65)
    assert [next_power_of_2(count) for count in counts] == [0, 1, 2, 4, 4, 8, 64, 64, 128]
    assert [previous_power_of_2(count) for count in counts] == [0, 1, 2, 2, 4, 4, 32, 64, 64]
