"""Which line has which row, with reports that arrive late."""

from qwen3_tts_morph.morph.graph.rows import REFILL_PATIENCE, RowTable


def table_of(rows: int, *lengths: int) -> RowTable:
    """Return rows with lines 0, 1, ... with prompts of these lengths."""
    table = RowTable(rows)
    assert table.take(lengths) == list(range(len(lengths)))
    return table


def test_large_batches_are_refilled_several_rows_at_a_time_and_the_last_lines_immediately():
    table = table_of(16, *[10] * 16)
    table.release(0)
    assert table.room(3) == 0, "one of sixteen rows is free"
    table.release(1)
    assert table.room(3) == 2 and table.room(0) == 0
    table.take([10, 10])
    table.release(2)
    assert table.room(1) == 1, "no more lines are waiting"


def test_a_few_free_rows_wait_for_others_for_some_frames_only():
    table = table_of(64, *[10] * 64)
    assert [table.room(9) for _ in range(2 * REFILL_PATIENCE)] == [0] * (2 * REFILL_PATIENCE), "none is free"
    for line in range(3):
        table.release(line)
    assert [table.room(9) for _ in range(REFILL_PATIENCE)] == [0] * REFILL_PATIENCE
    assert table.room(9) == 3
    table.take([10] * 3)
    table.release(3)
    assert table.room(9) == 0, "the next one waits for others again"
