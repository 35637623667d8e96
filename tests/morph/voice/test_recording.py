"""Recordings in the voice folder are voices: cloned by the model that speaks, with their words if those are there."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.library import VoiceLibrary, clone_recording
from qwen3_tts_morph.morph.voice.recording import MOST_TEXT_BYTES, read_recording
from qwen3_tts_morph.morph.voice.voice import Voice

RATE = 24000


@pytest.fixture
def library(tmp_path: Path, recording: np.ndarray) -> VoiceLibrary:
    """The recordings "anna", with its words, and "ben", without, and a voice that is called as another recording."""
    for name in ("anna", "ben", "clara"):
        soundfile.write(tmp_path / f"{name}.wav", recording, RATE, subtype="FLOAT")
    (tmp_path / "anna.txt").write_text("\ufeffA tone.\n", encoding="utf-8")
    save_voice(Voice("preset", "0b6", "clara", speaker="ryan"), tmp_path / "clara.safetensors")
    (tmp_path / "notes.txt").write_text("no voice", encoding="utf-8")
    return VoiceLibrary(tmp_path)


def test_recordings_are_listed_beside_voices_and_a_voice_comes_first(library):
    assert list(library.voices()) == ["clara"] and list(library.sources()) == ["anna", "ben", "clara"]
    assert library.load("clara").kind == "preset"


def test_a_recording_is_what_clone_voice_makes_of_it(load, library, recording):
    model = load()
    clone = partial(clone_recording, model)
    for name, options in (("anna", CloneOptions("icl", "A tone.")), ("ben", CloneOptions())):
        made, wanted = library.load(name, clone), clone_voice(model, recording, RATE, options)
        assert (made.kind, made.name, made.transcript) == (wanted.kind, name, wanted.transcript)
        assert torch.equal(made.speaker_embedding, wanted.speaker_embedding)
        assert (made.ref_codes is None) == (wanted.ref_codes is None)
    assert torch.equal(library.load("anna", clone).ref_codes, library.load("anna", clone).ref_codes)


def test_without_a_model_the_error_says_what_is_missing(library):
    with pytest.raises(ValueError, match=r"voice 'ben' is a recording \(ben\.wav\): give the model"):
        library.load("ben")


@pytest.mark.parametrize("name", ["../anna", "anna.wav", "nobody", "", None])
def test_a_name_is_looked_up_and_never_a_path(library, name):
    with pytest.raises(ValueError, match=r"is not in the library: choose one of anna, ben, clara"):
        library.source(name)


def test_a_file_that_is_no_recording_or_no_text_is_named(tmp_path, recording):
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"broken\.wav cannot be read as a recording"):
        read_recording(tmp_path / "broken.wav")
    soundfile.write(tmp_path / "long.wav", recording, RATE)
    (tmp_path / "long.txt").write_text("a" * (MOST_TEXT_BYTES + 1), encoding="utf-8")
    with pytest.raises(ValueError, match=r"long\.txt is larger than 0.008 MB: keep only what the recording says"):
        read_recording(tmp_path / "long.wav")
    (tmp_path / "long.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match=r"long\.txt is not text in UTF-8 or UTF-16"):
        read_recording(tmp_path / "long.wav")
