"""Batch sizes are powers of two, so that few are captured."""


def next_power_of_2(count: int) -> int:
    return 1 << (count - 1).bit_length() if count else 0


def previous_power_of_2(count: int) -> int:
    return 1 << count.bit_length() >> 1
