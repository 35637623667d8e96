"""When speech is retried, how often, and with which seeds."""

from dataclasses import dataclass
from hashlib import blake2b

from .takes import CAP, WRONG


@dataclass(frozen=True)
class RetryPolicy:
    """How often a take that went wrong is retried: of a piece, of a line at a server, of a line with wrong words.

    ``most_frames`` is the caller's own limit: a take that ran into it is as long as it was asked to be.
    """

    retries: int
    most_frames: int | None = None

    @property
    def further(self) -> range:
        """The numbers of the takes after the first."""
        return range(2, self.retries + 2)

    def is_wrong(self, ended: str, frames: int) -> bool:
        """Return whether another seed may help a take of ``frames`` that ended so."""
        at_own_limit = self.most_frames is not None and frames >= self.most_frames
        return ended in WRONG and not (ended == CAP and at_own_limit)


def next_seed(seed: int, pieces: int, takes: int = 1) -> int:
    """Return a seed ``takes`` later: pieces of a take have consecutive seeds, and no two takes share one."""
    return seed + takes * max(1, pieces)


def take_seed(seed: int, take: int) -> int:
    """Return the seed of a user's or a word check's take of a line, counted from 1: ``[take N]`` in a script."""
    return seed if take == 1 else hash_seed(f"{seed}\0take {take}")


def hash_seed(key: str) -> int:
    """Return a seed that depends on words only, so that it stays when other lines change."""
    return int.from_bytes(blake2b(key.encode(), digest_size=7).digest(), "big")
