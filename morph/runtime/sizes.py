"""Powers of two: batch sizes, so that few are captured."""


def power_above(count: int) -> int:
    return 1 << (count - 1).bit_length() if count else 0


def power_below(count: int) -> int:
    return 1 << count.bit_length() >> 1
