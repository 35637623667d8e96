"""What the table of seams counts, and how."""

from __future__ import annotations

import numpy as np
import pytest
from qwen3_tts_morph.morph.text.split import split_text

from lab.words.continuity import Seams, count_echoes, level_of, long_texts, parse, pitch_of, summarise

PIECES = ["The bridge was closed.", "They walked along the river.", "The river was cold."]
RATE = 24000


def tone(hertz: float, level: float = 0.5) -> np.ndarray:
    """A second of a tone with overtones."""
    seconds = np.arange(RATE) / RATE
    waves = [np.sin(2 * np.pi * hertz * number * seconds) / number for number in (1, 2, 3)]
    return (level * np.sum(waves, axis=0)).astype(np.float32)


@pytest.mark.parametrize(
    ("heard", "count"),
    [
        ("The bridge was closed. They walked along the river. The river was cold.", 0),
        ("The bridge was closed. Closed. They walked along the river. The river was cold.", 1),
        ("The bridge was closed. They walked along the river. Along the river. The river was cold.", 1),
        ("and cold. The bridge was closed. They walked along the river. The river was cold.", 1),
        ("The bridge was closed. They walked, they walked along the river. The river was cold.", 0),
        ("The bridge was was closed. They walked along. The river was cold.", 0),
    ],
)
def test_an_echo_is_the_end_of_what_was_before_a_piece(heard: str, count: int) -> None:
    assert count_echoes(PIECES, heard, before="it was wet and cold") == count


def test_texts_have_as_many_pieces_as_are_asked_for_and_no_sentence_twice() -> None:
    assert len(long_texts(20, 10, 99)) == 20
    texts = long_texts(3, 5, 99)
    assert [len(split_text(text, 99)) >= 5 for text in texts] == [True] * 3
    assert len({text[:40] for text in texts}) == 3 and texts[1][:40] not in texts[0]


def test_pitch_and_level_of_a_tone() -> None:
    octave = pitch_of(tone(220), RATE), pitch_of(tone(110), RATE)
    assert None not in octave and octave[0] - octave[1] == pytest.approx(12, abs=0.2)
    quiet = np.concatenate([tone(220, 0.05), np.zeros(RATE, np.float32)])
    assert level_of(tone(220), RATE) - level_of(quiet, RATE) == pytest.approx(20, abs=0.5)
    assert pitch_of(np.zeros(RATE, np.float32), RATE) is None


def test_a_row_has_medians_of_seams_and_sums_of_texts() -> None:
    one = Seams((1.0, 3.0), (2.0, 2.0), 0.9, 1, 10, 0, "eos", False)
    other = Seams((5.0,), (1.0, 5.0), 0.7, 0, 10, 2, "words", True)
    assert summarise([one, other]) == {
        "texts": 2,
        "seams": 4,
        "pitch_semitones": 3.0,
        "level_db": 2.0,
        "similarity": 0.8,
        "wrong_words_percent": 5.0,
        "echoes": 2,
        "wrong": 1,
    }


def test_the_command_is_for_any_device() -> None:
    asked = parse(["--device", "cpu", "--texts", "2"])
    assert (asked.device, asked.texts, asked.pieces, asked.voices) == (
        "cpu",
        2,
        10,
        ("preset", "x_vector", "icl"),
    )
