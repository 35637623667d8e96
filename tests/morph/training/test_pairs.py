"""Which recordings are trained on, and why others are left out."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.hearing.whisper import Transcription
from qwen3_tts_morph.morph.training.pairs import Pair, Selection, check_recordings, check_speaker, read_folder
from qwen3_tts_morph.morph.voice.recording import Recording

from tests.morph.training.sounds import RATE, TEXT, noise, speech, write

ROOM = noise(3, 1) / 4


def recogniser(*texts: str, languages: tuple[str, ...] = ()) -> SimpleNamespace:
    """Return a recogniser of these texts, one after another."""
    left, spoken = list(texts), list(languages)

    def transcribe(waveform, rate, language) -> Transcription:
        assert waveform.ndim == 1 and rate == RATE
        return Transcription(left.pop(0), (), spoken.pop(0) if spoken else "english")

    return SimpleNamespace(name="whisper", transcribe_words=transcribe)


def check(*recordings: Recording, by: SimpleNamespace | None = None, language: str = "auto") -> Selection:
    return check_recordings(recordings, RATE, language, by, lambda _: None)


def recorded(sound: np.ndarray, text: str | None = TEXT, name: str = "a") -> Recording:
    return Recording(name, sound[None], RATE, text)


@pytest.mark.parametrize(
    ("sound", "reason"),
    [
        (speech(0.2), "reference is 0.20 s long: give at least 1 s"),
        (speech(31), "it is longer than 30 s: cut it"),
        (noise(3), "no speech is found"),
        (np.clip(30 * speech(3), -1, 1), "it is clipped"),
        (speech(3) + ROOM, "it is noisy"),
        (np.full(3 * RATE, np.nan, np.float32), "reference contains NaN"),
    ],
)
def test_a_spoilt_recording_is_left_out_with_the_reason(sound, reason) -> None:
    found = check(recorded(sound), recorded(speech(2), name="b"))
    assert [one.name for one in found.pairs] == ["b"] and found.pairs[0].waveform.ndim == 1
    assert found.refused.keys() == {"a"} and found.refused["a"].startswith(reason)


def test_missing_texts_are_written_and_wrong_ones_are_found() -> None:
    four = [recorded(speech(2), text, name) for text, name in [(None, "a"), (TEXT, "b"), (TEXT, "c"), (None, "d")]]
    found = check(*four, by=recogniser("Hello there.", "One, two, three!", "The sea is wide and cold.", " "))
    assert {one.name: one.text for one in found.pairs} == {"a": "Hello there.", "b": TEXT}
    assert found.refused["c"].startswith("it says 'The sea is wide and cold.', and its text is 'One two three.'")
    assert found.refused["d"].startswith("no words are recognised in it")


def test_recordings_in_another_language_than_most_are_left_out() -> None:
    three = [recorded(speech(2), None, name) for name in "abc"]
    by = recogniser("Hallo.", "Hello.", "Good day.", languages=("german", "english", "english"))
    found = check(*three, by=by)
    assert [one.name for one in found.pairs] == ["b", "c"]
    assert found.refused == {"a": "it is in german and most others are in english: train one language"}


def test_without_a_recogniser_a_text_must_be_there_and_about_as_long() -> None:
    found = check(recorded(speech(2), None), recorded(speech(2), "word " * 60, "b"), recorded(speech(9), "No.", "c"))
    assert not found.pairs
    assert found.refused["a"] == "it has no words: write what it says into a.txt, or choose a recogniser"
    assert [found.refused[name].split(" for it")[0] for name in "bc"] == [
        "its text is too long",
        "its text is too short",
    ]


def test_recordings_of_another_speaker_or_of_two_are_left_out(load) -> None:
    model = load()

    def embed(waveform: np.ndarray) -> torch.Tensor:
        """Tell two speakers apart: one speaks above 0, the other below."""
        return torch.tensor([1.0, 0.1] if waveform.mean() > 0 else [-0.2, 1.0])

    told = SimpleNamespace(
        network=SimpleNamespace(speaker_encoder=SimpleNamespace(embed=embed)),
        exclusive=model.exclusive,
        device=model.device,
        sample_rate=RATE,
        width=1,
    )
    one, other = abs(speech(4)), -abs(speech(4, 1))
    pause = np.zeros(3 * RATE, np.float32)
    sounds = {"a": one, "b": np.concatenate((one, pause, one)), "c": other, "d": np.concatenate((one, other))}
    found = Selection([Pair(name, sound, TEXT) for name, sound in sounds.items()])
    check_speaker(told, found)
    assert [one.name for one in found.pairs] == ["a", "b"]
    assert found.refused == {
        "c": "it sounds like another speaker than most: train one speaker",
        "d": "it sounds like two speakers: cut it, and its text, to what one of them says",
    }


def test_a_folder_is_read_with_its_texts(tmp_path) -> None:
    write(tmp_path, "b", speech(2), None)
    write(tmp_path, "a", speech(2))
    (tmp_path / "c.ogg").write_bytes(b"no sound")
    (tmp_path / "d.txt").write_text("Nothing.")
    recordings, refused = read_folder(tmp_path)
    assert [(one.name, one.transcript) for one in recordings] == [("a", TEXT), ("b", None)]
    assert refused.keys() == {"c.ogg", "d.txt"}
    with pytest.raises(ValueError, match=r"e is no folder: give one with NAME\.wav"):
        read_folder(tmp_path / "e")
