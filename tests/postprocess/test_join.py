import itertools

import numpy as np
import pytest
from qwen3_tts_morph.postprocess.join import Spacing, join

RATE = 1000


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_a_plain_join_is_a_concatenation():
    pieces = [noise(50, seed=1), noise(1, seed=2), noise(70, seed=3)]
    joined, spans = join(pieces, RATE)
    np.testing.assert_array_equal(joined, np.concatenate(pieces))
    assert spans == [(0, 50), (50, 51), (51, 121)]
    assert joined.dtype == np.float32


def test_gaps_lead_and_tail_are_silent_and_pieces_are_where_the_spans_say():
    pieces = [noise(50, seed=1), noise(30, seed=2), noise(20, seed=3)]
    joined, spans = join(pieces, RATE, Spacing(gap_s=[0.1, 0.025], lead_s=0.01, tail_s=0.02))
    assert spans == [(10, 60), (160, 190), (215, 235)]
    assert joined.size == 255
    covered = np.zeros(255, bool)
    for piece, (start, end) in zip(pieces, spans, strict=True):
        np.testing.assert_array_equal(joined[start:end], piece)
        covered[start:end] = True
    assert not joined[~covered].any()


def test_one_number_is_the_gap_of_every_joint():
    assert join([noise(10)] * 3, RATE, Spacing(gap_s=0.005))[1] == [(0, 10), (15, 25), (30, 40)]


@pytest.mark.parametrize("lengths", [(100, 100), (100, 7, 100), (1, 1, 1), (30, 21, 4, 50), (2, 3)])
@pytest.mark.parametrize("crossfade_ms", [1.0, 20.0, 60.0])
def test_a_crossfade_keeps_a_constant(lengths, crossfade_ms):
    joined, spans = join([np.full(length, 0.7) for length in lengths], RATE, Spacing(crossfade_ms=crossfade_ms))
    np.testing.assert_allclose(joined, 0.7, rtol=1e-12)
    assert joined.size == spans[-1][1]
    assert [end - start for start, end in spans] == list(lengths)


def test_a_crossfade_is_a_raised_cosine_of_the_given_length():
    joined, spans = join([np.ones(100), np.zeros(100)], RATE, Spacing(crossfade_ms=20))
    assert spans == [(0, 100), (80, 180)]
    expected = 0.5 + 0.5 * np.cos(np.pi * (np.arange(20) + 0.5) / 20)
    np.testing.assert_allclose(joined[80:100], expected, atol=1e-12)
    assert (joined[:80] == 1).all() and not joined[100:].any()


def test_fades_shrink_to_half_of_the_shorter_piece_and_never_meet_inside_one():
    _, spans = join([np.ones(100), np.ones(9), np.ones(100)], RATE, Spacing(crossfade_ms=50))
    assert spans == [(0, 100), (96, 105), (101, 201)]


def test_a_joint_with_a_gap_is_not_faded():
    pieces = [noise(100, seed=1), noise(100, seed=2), noise(100, seed=3)]
    joined, spans = join(pieces, RATE, Spacing(gap_s=[0.05, 0.0], crossfade_ms=20))
    assert spans == [(0, 100), (150, 250), (230, 330)]
    np.testing.assert_array_equal(joined[:100], pieces[0])
    np.testing.assert_array_equal(joined[150:230], pieces[1][:80])


def test_spans_stay_exact_over_random_joins():
    rng = np.random.default_rng(7)
    for _ in range(200):
        lengths = rng.integers(1, 60, size=rng.integers(1, 6))
        gaps = rng.choice([0.0, 0.013], size=len(lengths) - 1).tolist()
        pieces = [np.full(length, 0.5) for length in lengths]
        joined, spans = join(pieces, RATE, Spacing(gap_s=gaps, crossfade_ms=float(rng.integers(0, 40))))
        assert joined.size == spans[-1][1]
        assert [end - start for start, end in spans] == lengths.tolist()
        sounding = np.zeros(joined.size, bool)
        for start, end in spans:
            sounding[start:end] = True
        np.testing.assert_allclose(joined, np.where(sounding, 0.5, 0.0))
        for (_, end), (start, _), gap in zip(spans, spans[1:], gaps, strict=False):
            assert start - end == 13 if gap else start <= end


def test_mono_is_copied_to_the_widest():
    mono, stereo = noise(40, seed=1), noise(2, 60, seed=2)
    for order in itertools.permutations([mono, stereo, mono[None]]):
        joined, spans = join(order, RATE)
        assert joined.shape == (2, 140)
        for piece, (start, end) in zip(order, spans, strict=True):
            np.testing.assert_array_equal(joined[:, start:end], np.broadcast_to(piece, (2, end - start)))


def test_one_piece_alone_comes_back_as_a_copy():
    piece = noise(2, 5)
    joined, spans = join([piece], RATE, Spacing(gap_s=[], crossfade_ms=50))
    np.testing.assert_array_equal(joined, piece)
    assert spans == [(0, 5)] and not np.shares_memory(joined, piece)


def test_inputs_are_left_as_they_were():
    pieces = [noise(50, seed=1), noise(50, seed=2)]
    kept = [piece.copy() for piece in pieces]
    join(pieces, RATE, Spacing(crossfade_ms=20))
    np.testing.assert_array_equal(pieces, kept)


@pytest.mark.parametrize(
    ("pieces", "options", "sentence"),
    [
        ([], {}, "waveforms is empty"),
        ([np.ones(5), np.array([np.nan])], {}, r"waveforms\[1\] contains NaN"),
        ([np.ones((2, 5)), np.ones((6, 5))], {}, "2 and 6 channels: mix them"),
        ([np.ones(5)] * 3, {"gap_s": [0.1]}, "1 gaps for 2 joints"),
        ([np.ones(5)] * 2, {"gap_s": [-0.1]}, r"gap_s\[0\] is -0.1"),
        ([np.ones(5)], {"gap_s": -0.1}, "gap_s is -0.1"),
        ([np.ones(5)], {"gap_s": np.nan}, "gap_s is nan"),
        ([np.ones(5)], {"lead_s": -1.0}, "lead_s is"),
        ([np.ones(5)], {"tail_s": np.inf}, "tail_s is"),
        ([np.ones(5)], {"crossfade_ms": -1.0}, "crossfade_ms is"),
        ([np.ones(5)] * 2, {"gap_s": 1e9}, "gap_s is 1000000000.0: choose 0 to 3600 s"),
        ([np.ones(5)] * 2, {"gap_s": "3"}, r"gap_s\[0\] is '3'"),
        ([np.ones(5)] * 2, {"gap_s": None}, "gap_s is None"),
    ],
)
def test_wrong_input_is_refused(pieces, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        join(pieces, RATE, Spacing(**options))


def test_more_silence_than_memory_takes_is_refused():
    """Each gap is allowed by itself; together they are 5.6 GiB."""
    stereo = np.ones((2, 5))
    with pytest.raises(ValueError, match="add up to 36000 s of silence: choose at most 26844 s in all"):
        join([stereo] * 11, 20000, Spacing(gap_s=3600.0))
