"""The part of a recording that is cloned: chosen by numbers, or the best 3 to 12 s."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.voice.measure import Excerpt, better_part, choose, measure, propose, tell

from tests.morph.voice.made_speech import RATE, clip, hush, phrase

ROOT = Path(__file__).resolve().parents[3]


def best(*parts: np.ndarray) -> Excerpt:
    return propose(measure(np.concatenate(parts), RATE))


def test_the_best_part_has_the_most_speech_and_its_ends_are_in_the_pauses() -> None:
    part = best(hush(2), phrase(3.5), hush(3), phrase(4.0), hush(0.4), phrase(4.0), hush(3))
    assert (part.start_s, part.end_s) == (pytest.approx(8.4, abs=0.05), pytest.approx(17.15, abs=0.05))
    assert "8.0 s of speech, not clipped, starts and ends in pauses" in part.about


def test_it_lasts_at_most_12_s_and_the_first_of_equal_ones_is_taken() -> None:
    part = best(*[hush(0.5), phrase(5.0)] * 6, hush(0.5))
    assert part.start_s == pytest.approx(0.4, abs=0.05) and 10 < part.seconds <= 12


def test_what_is_clipped_and_what_changes_its_level_is_left_out() -> None:
    spoilt = clip(phrase(6.0) * 4, 0.5)
    part = best(hush(0.5), spoilt, hush(0.5), phrase(4.0), hush(0.5))
    assert part.start_s > 6.5 and "not clipped" in part.about
    part = best(hush(0.5), phrase(4.0), hush(0.4), phrase(1.5, 0.02), hush(0.5))
    assert part.end_s < 5


def test_a_long_pause_costs_more_than_a_word_behind_it_brings() -> None:
    assert best(hush(0.5), phrase(4.0), hush(3.0), phrase(1.0), hush(0.5)).end_s < 5


def test_speech_without_a_pause_is_cut_at_a_quiet_moment_and_that_is_said() -> None:
    part = best(phrase(30.0))
    assert 3 <= part.seconds <= 12 and "2 of its ends not in a pause" in part.about


@pytest.mark.parametrize("seconds", [0.3, 2.0])
def test_a_little_speech_is_taken_whole_and_lasts_a_second(seconds: float) -> None:
    part = best(hush(2), phrase(seconds), hush(2))
    assert 1 <= part.seconds < 3 and part.start_s <= 2 and part.end_s >= 2 + seconds
    assert part.about == "there is no other speech"


def test_without_speech_the_beginning_is_taken() -> None:
    assert str(best(hush(20, 0.1))) == "0.00 to 12.00 s"


def test_the_packs_own_recording_is_taken_but_for_the_silence_at_its_ends() -> None:
    samples, rate = soundfile.read(ROOT / "recordings" / "austen.flac", dtype="float32")
    measured = measure(samples, rate)
    part = propose(measured)
    [(start, end)] = measured.speech
    assert 0 <= start - part.start_s <= 0.1 and 0 <= part.end_s - end <= 0.25
    assert better_part(measured) is better_part(measured, icl=True) is None
    lines = tell(part, measured, samples, rate)
    assert lines[0].startswith(f"the best part: {part} of 7.1") and "speech 6.5 s" in lines[1]


def test_a_part_is_better_than_what_is_too_long_or_clipped_elsewhere() -> None:
    long = measure(np.concatenate([hush(0.5), phrase(4.0)] * 4 + [hush(0.5)]), RATE)
    assert better_part(long) is None and better_part(long, icl=True) == propose(long)
    longer = measure(np.concatenate([hush(0.5), phrase(4.0)] * 8 + [hush(0.5)]), RATE)
    assert better_part(longer) == propose(longer)
    spoilt = measure(np.concatenate([hush(0.5), clip(phrase(2) * 4, 0.5), hush(0.5), phrase(4), hush(1)]), RATE)
    assert better_part(spoilt) == propose(spoilt)
    assert better_part(measure(hush(40, 0.1), RATE)) is None, "of noise no part is better"


def test_numbers_choose_the_samples_and_0_is_the_end() -> None:
    channels = np.stack([np.arange(4 * RATE), np.arange(4 * RATE)]).astype(np.float32)
    cut = choose(4.0, 1.5, 3.0).cut(channels, RATE)
    assert cut.shape == (2, 1.5 * RATE) and cut[0, 0] == 1.5 * RATE
    assert choose(4.0, 1.0) == choose(4.0, 1.0, 4.004) == Excerpt(1.0, 4.0)
    assert choose(4.0).cut(channels, RATE).shape == channels.shape


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((9.0, 0.0), "start is 9 s and the recording is 4.00 s long: choose a moment within it"),
        ((0.0, 5.0), "end is 5 s and the recording is 4.00 s long"),
        ((-1.0, 3.0), "start is -1 s"),
        ((float("nan"), 3.0), "start is nan s"),
        ((3.5, 0.0), "start 3.5 s and end 4 s leave 0.50 s: choose at least 1 s"),
        ((3.0, 2.0), "leave 0.00 s"),
    ],
)
def test_what_is_no_part_is_refused(bounds: tuple[float, float], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        choose(4.0, *bounds)
