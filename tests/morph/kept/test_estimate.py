"""What is said of long speech while it is made: its length, and what is left by the speed of the run."""

from qwen3_tts_morph.morph.kept.render import Estimate

HOUR = 45_000  # frames


def test_what_is_left_is_told_by_the_speed_of_the_run_and_not_before() -> None:
    estimate = Estimate()
    said = [estimate.describe(done, HOUR, 750, now) for done, now in ((0, 0), (10, 30), (20, 31), (10 + 4499, 39.0))]
    assert said[:3] == ["about 60 min of speech in about 750 pieces"] * 3, "the time of the first frames is no speed"
    assert said[3] == "about 60 min of speech in about 750 pieces, 10 % done, about 81 s left"


def test_of_short_speech_nothing_is_said() -> None:
    assert Estimate().describe(100, 200, 1, 9.0) == ""
