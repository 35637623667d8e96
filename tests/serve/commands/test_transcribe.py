"""``transcribe``: a recording to text and captions."""

from types import SimpleNamespace

import pytest
from qwen3_tts_morph.morph.hearing import whisper
from qwen3_tts_morph.morph.hearing.whisper import Transcription
from qwen3_tts_morph.morph.words.timing import WordTime

WORDS = (WordTime("Hello.", 0.5, 1.0, 0, 6), WordTime("Bye.", 2.5, 3.0, 7, 11))


@pytest.fixture(autouse=True)
def recogniser(monkeypatch: pytest.MonkeyPatch) -> None:
    def transcribe(waveform, rate, language, show):
        assert waveform.ndim == 1 and rate == 24000
        show(2.0, 2.0)
        return Transcription(
            "" if language == "german" else "Hello. Bye.", () if language == "german" else WORDS, "english"
        )

    monkeypatch.setattr(whisper, "load_whisper", lambda size, root: SimpleNamespace(transcribe_words=transcribe))


def test_the_words_are_printed_or_written_as_captions(run, recording, tmp_path) -> None:
    assert run("transcribe", recording).lines == ["Hello. Bye."]
    done = run("transcribe", recording, "--out", "film.srt")
    assert done.code == 0 and "english: wrote" in done.err
    written = (tmp_path / "film.srt").read_text(encoding="utf-8")
    assert written.startswith("1\n00:00:00,500 --> 00:00:01,000\nHello.\n\n2\n00:00:02,500")
    again = run("transcribe", recording, "--out", "film.srt")
    assert again.code == 2 and "exists already" in again.err
    assert run("transcribe", recording, "--out", "film.txt").code == 0
    assert (tmp_path / "film.txt").read_text(encoding="utf-8") == "Hello. Bye.\n"


def test_what_cannot_be_transcribed_is_a_sentence(run, recording) -> None:
    silent = run("transcribe", recording, "--language", "german")
    assert silent.code == 2 and "no words were recognised in" in silent.err
    assert "language is 'klingon': choose one of auto, " in run("transcribe", recording, "--language", "klingon").err
