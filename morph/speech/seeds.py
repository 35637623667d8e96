"""Derive seeds from other seeds and words, so that they stay when other lines change."""

from __future__ import annotations

from hashlib import blake2b


def hash_seed(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=7).digest(), "big")


def take_seed(seed: int, take: int) -> int:
    """Return the seed of a take, counted from 1: ``[take N]`` in a script."""
    return seed if take == 1 else hash_seed(f"{seed}\0take {take}")
