"""Pieces joined in portions have the samples of join, to the bit."""

import numpy as np
import pytest
from qwen3_tts_morph.postprocess.join import Spacing, StreamJoin, join

RATE = 24000
FADE_MS = 60  # 1,440 samples


def in_portions(pieces: list[np.ndarray], portion: int, fade: int) -> tuple[np.ndarray, list[int]]:
    """The joined samples, and how many of them were known after each portion and each end."""
    joined, known = StreamJoin(fade), []
    parts = [joined.limit(len(pieces))]
    for piece in pieces:
        for begin in range(0, len(piece), portion):
            parts.append(joined.add(piece[begin : begin + portion]))
            known.append(sum(map(len, parts)))
        parts.append(joined.end())
        known.append(sum(map(len, parts)))
    return np.concatenate(parts), known


@pytest.mark.parametrize("portion", [100, 1440, 1920, 50_000])
@pytest.mark.parametrize(
    "lengths",
    [(5000,), (5000, 6000), (9600, 1920, 9600), (1920, 1920, 1920), (1001, 3, 1, 7000), (2880, 2879, 2881)],
    ids=str,
)
def test_the_portions_do_not_matter(lengths, portion):
    noise = np.random.default_rng(0)
    pieces = [noise.normal(size=length).astype(np.float32) for length in lengths]
    pieces[0][:3] = -0.0, 0.0, -0.0
    whole, _ = join(pieces, RATE, Spacing(crossfade_ms=FADE_MS))
    ours, _ = in_portions(pieces, portion, 1440)
    assert ours.dtype == np.float32 and ours.tobytes() == whole.tobytes()


@pytest.mark.parametrize("portion", [100, 1440, 50_000])
@pytest.mark.parametrize("gaps", [(0.1, 0.0, 0.05), (0.0, 0.001, 0.0), (0.0, 0.0, 0.2)], ids=str)
def test_beside_a_silence_no_piece_fades(gaps, portion):
    noise = np.random.default_rng(0)
    pieces = [noise.normal(size=length).astype(np.float32) for length in (5000, 6000, 3, 9000)]
    pieces[0][-3:] = -0.0
    whole, _ = join(pieces, RATE, Spacing(gaps, FADE_MS))
    joined = StreamJoin(1440)
    parts = [joined.limit(len(pieces))]
    for piece, gap in zip(pieces, (0.0, *gaps), strict=True):
        if gap:
            parts.append(joined.gap(round(gap * RATE)))
        parts += [joined.add(piece[begin : begin + portion]) for begin in range(0, len(piece), portion)]
        parts.append(joined.end())
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_without_a_fade_nothing_is_held_back():
    pieces = [np.ones(300, np.float32), np.full(200, 2, np.float32)]
    ours, known = in_portions(pieces, 100, 0)
    assert np.array_equal(ours, np.concatenate(pieces)) and known == [100, 200, 300, 300, 400, 500, 500]


def test_only_the_samples_of_a_fade_are_held_back():
    pieces = [np.ones(5000, np.float32), np.ones(5000, np.float32)]
    known = in_portions(pieces, 1000, 1440)[1]
    assert known[:6] == [0, 560, 1560, 2560, 3560, 3560]  # until the second piece has two fades
    assert known[6:] == [3560, 3560, 6560, 7560, 8560, 8560]
