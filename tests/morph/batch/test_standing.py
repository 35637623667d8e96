"""How long a line may keep a row that stands still."""

from qwen3_tts_morph.morph.batch.standing import STAND_S, Standing


def test_time_counts_while_the_row_stands_still_and_others_wait() -> None:
    now = [0.0]
    standing = Standing(lambda: now[0])
    for stands, seconds in ((False, 100.0), (True, STAND_S - 1), (False, 100.0), (True, 0.5)):
        standing.note(stands)
        now[0] += seconds
    standing.note(True)
    assert not standing.exceeds(0.0)
    now[0] += 0.5
    standing.note(True)
    assert standing.exceeds(0.0)
    assert not standing.exceeds(0.1), "what was spoken is granted"
