"""The voice library: rename, delete, describe and import, by names from its listing, and checks of what comes in."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.voice import library as module
from qwen3_tts_morph.morph.voice.file import (
    LONGEST_DESCRIPTION,
    MOST_BYTES,
    holds_voice,
    load_voice,
    read_voice,
    save_voice,
)
from qwen3_tts_morph.morph.voice.library import VoiceLibrary, describe_file
from qwen3_tts_morph.morph.voice.voice import Voice, needs_of
from safetensors import safe_open
from safetensors.torch import save_file

ANNA = Voice("x_vector", "0b6", "Anna", torch.arange(8) / 8)
BOB = Voice("icl", "1b7", "Bob", torch.ones(8), torch.zeros(25, 16, dtype=torch.int64), "Good morning.")
RYAN = Voice("preset", "1b7", "ryan", speaker="ryan", instruct="whispering")
OLD = Voice("design", "1b7", "designed voice", instruct="an old man")


@pytest.fixture
def library(tmp_path: Path) -> VoiceLibrary:
    """Return a library with Anna and Bob, and Ryan in a second folder; another program's file lies beside it."""
    found = VoiceLibrary(tmp_path / "voices", [tmp_path / "more"])
    save_voice(ANNA, found.folder / "Anna.safetensors", "a calm voice")
    save_voice(BOB, found.folder / "Bob.safetensors")
    save_voice(RYAN, tmp_path / "more" / "Ryan.safetensors")
    save_voice(ANNA, tmp_path / "secret.safetensors")
    save_file({"a": torch.ones(2)}, found.folder / "other.safetensors")
    return found


def test_voices_are_listed_with_what_they_fit_and_their_description(library: VoiceLibrary) -> None:
    assert list(library.voices()) == ["Anna", "Bob", "Ryan"]
    anna, bob, ryan = library.listing({})
    assert (anna["kind"], anna["fits"], anna["description"]) == ("x_vector", "0.6B Base", "a calm voice")
    assert (bob["fits"], bob["transcript"], bob["reference_seconds"]) == ("1.7B Base", "Good morning.", 2.0)
    assert (ryan["fits"], ryan["speaker"], ryan["description"]) == ("1.7B with ryan", "ryan", "")
    assert "folder" not in json.dumps([anna, bob, ryan])
    with pytest.raises(ValueError, match="not a voice file"):
        describe_file("other", library.find("other"))


@pytest.mark.parametrize(
    ("voice", "config", "fits"),
    [
        (ANNA, {"tts_model_size": "0b6", "tts_model_type": "base"}, True),
        (ANNA, {"tts_model_size": "1b7", "tts_model_type": "base"}, False),
        (ANNA, {"tts_model_size": "0b6", "tts_model_type": "custom_voice"}, False),
        (OLD, {"tts_model_size": "1b7", "tts_model_type": "voice_design"}, True),
        (RYAN, {"tts_model_size": "1b7", "talker_config": {"spk_id": {"Ryan": 1}}}, True),
        (RYAN, {"tts_model_size": "1b7", "talker_config": {"spk_id": {"eric": 1}}}, False),
        (RYAN, {"tts_model_size": "1b7", "talker_config": {"spk_id": None}}, False),
    ],
)
def test_a_voice_knows_the_checkpoints_that_it_fits(voice: Voice, config: dict, fits: bool) -> None:
    assert needs_of(vars(voice)).are_met_by(config) == fits


def test_what_a_voice_fits_is_said_in_words() -> None:
    demo = Voice("preset", "0b02", "heart", speaker="heart")
    assert [str(needs_of(vars(one))) for one in (OLD, demo)] == ["1.7B VoiceDesign", "demo voice with heart"]


def test_a_renamed_voice_keeps_everything_but_its_name(library: VoiceLibrary) -> None:
    assert library.rename("Anna", " Anna B.safetensors ") == "Anna B"
    assert list(library.voices()) == ["Anna B", "Bob", "Ryan"]
    voice = library.load("Anna B")
    assert voice.name == "Anna B" and torch.equal(voice.speaker_embedding, ANNA.speaker_embedding)
    assert describe_file("Anna B", library.find("Anna B"))["description"] == "a calm voice"
    with pytest.raises(ValueError, match="voice 'Anna' is not in the library: choose one of Anna B, Bob, Ryan"):
        library.load("Anna")
    library.rename("Ryan", "Rye")
    assert library.find("Rye").parent.name == "more", "a voice stays in its folder"


def test_a_rename_that_cannot_be_written_leaves_the_voice_as_it_was(library, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "save_voice", fail)
    with pytest.raises(ValueError, match=r"cannot be changed \(No space left on device\): check its folder"):
        library.rename("Anna", "Other")
    assert library.load("Anna").name == "Anna" and list(library.voices()) == ["Anna", "Bob", "Ryan"]


def test_a_voice_can_change_between_upper_and_lower_case(library: VoiceLibrary) -> None:
    library.rename("Anna", "ANNA")
    assert "ANNA.safetensors" in os.listdir(library.folder)
    assert library.load("ANNA").name == "ANNA"


@pytest.mark.parametrize("new", ["Bob", "Ryan"])
def test_a_name_that_is_taken_is_refused(library: VoiceLibrary, new: str) -> None:
    with pytest.raises(ValueError, match=f"a voice named '{new}' already exists"):
        library.rename("Anna", new)
    assert library.load("Anna").kind == "x_vector" and library.load("Bob").kind == "icl"


@pytest.mark.parametrize("new", ["../x", "a/b", "", "CON", ".hidden", "x\0"])
def test_a_new_name_cannot_leave_the_folder(library: VoiceLibrary, new: str) -> None:
    with pytest.raises(ValueError, match="name"):
        library.rename("Anna", new)
    assert list(library.voices()) == ["Anna", "Bob", "Ryan"]


def test_a_voice_is_deleted(library: VoiceLibrary) -> None:
    library.delete("Anna")
    assert list(library.voices()) == ["Bob", "Ryan"]
    empty = VoiceLibrary(library.folder / "none")
    with pytest.raises(ValueError, match="'Anna' is not in the library: it has none, save one first"):
        empty.delete("Anna")


def test_a_description_is_one_line_in_the_file_and_changes_nothing_of_the_voice(library) -> None:
    assert library.describe("Bob", " an old\n man, 老人 ") == "an old man, 老人"
    path = library.find("Bob")
    assert read_voice(path)[1] == "an old man, 老人" and holds_voice(path, BOB)
    library.describe("Bob", "")
    assert read_voice(path)[1] == ""


@pytest.mark.parametrize("text", ["x" * (LONGEST_DESCRIPTION + 1), "\x1b[31mred", "\ud800"])
def test_a_description_that_cannot_be_shown_is_refused(library: VoiceLibrary, text: str) -> None:
    with pytest.raises(ValueError, match="description"):
        library.describe("Anna", text)
    assert describe_file("Anna", library.find("Anna"))["description"] == "a calm voice"


def test_an_exported_file_can_be_imported_under_another_name(library: VoiceLibrary, tmp_path: Path) -> None:
    source = (tmp_path / "download.bin").resolve()
    source.write_bytes(library.find("Anna").read_bytes())
    assert library.take_in(source, "Anna 2") == "Anna 2"
    assert (
        library.load("Anna 2").name == "Anna 2"
        and describe_file("Anna 2", library.find("Anna 2"))["description"] == "a calm voice"
    )
    assert library.take_in(source, "Anna") == "Anna", "the same voice is no error"
    with pytest.raises(ValueError, match="a voice named 'Bob' already exists"):
        library.take_in(source, "Bob")
    library.take_in(source, "Bob", overwrite=True)
    assert holds_voice(library.find("Bob"), ANNA)


def test_only_what_belongs_to_a_voice_reaches_the_library(library: VoiceLibrary, tmp_path: Path) -> None:
    with safe_open(library.find("Anna"), framework="pt") as file:
        metadata = {**file.metadata(), "script": "<b>"}
        save_file({"speaker_embedding": file.get_tensor("speaker_embedding")}, tmp_path / "x", metadata)
    library.take_in(tmp_path / "x", "New")
    with safe_open(library.find("New"), framework="pt") as file:
        assert set(file.metadata()) == {"format", "version", "voice", "sha256", "description"}


def odd_files(voice: bytes) -> dict[str, bytes]:
    header = (1 << 40).to_bytes(8, "little")
    return {
        "nothing": b"",
        "text": b"a voice",
        "another format": b"\x80\x04].",
        "huge header": header + b"{}",
        "cut": voice[:-1],
        "changed": voice[:-1] + bytes([voice[-1] ^ 1]),
        "too large": voice + bytes(MOST_BYTES),
    }


@pytest.mark.parametrize("odd", odd_files(b"xx"))
def test_a_file_that_is_no_voice_is_refused(library: VoiceLibrary, tmp_path: Path, odd: str) -> None:
    source = tmp_path / "upload"
    source.write_bytes(odd_files(library.find("Anna").read_bytes())[odd])
    with pytest.raises(ValueError, match="voice file") as refused:
        library.take_in(source, "New")
    assert str(tmp_path) not in str(refused.value) and "New" not in library.files()


def test_a_forged_description_is_refused(library: VoiceLibrary, tmp_path: Path) -> None:
    save_voice(ANNA, tmp_path / "forged", "\x1b[2Jgone")
    with pytest.raises(ValueError, match="forged is damaged"):
        library.take_in(tmp_path / "forged", "New")
    assert load_voice(tmp_path / "forged").name == "Anna"


def test_a_voice_has_the_list_of_words_beside_its_file(library: VoiceLibrary) -> None:
    beside = library.folder / "Anna.pronunciation.txt"
    beside.write_text("Nguyen = win", encoding="utf-8")
    assert library.load("Bob").pronunciation == ()
    [own] = library.load("Anna").pronunciation
    assert own.words == (("Nguyen", "win"),)
    library.rename("Anna", "Anne")
    assert library.load("Anne").pronunciation == (own,) and not beside.exists()
    (library.folder / "Anne.pronunciation.txt").write_text("Nguyen", encoding="utf-8")
    with pytest.raises(ValueError, match=r"Anne.pronunciation.txt cannot be read:\nline 1: 'Nguyen' has no ="):
        library.load("Anne")
    soundfile.write(library.folder / "Ben.wav", np.zeros(10), 24000)
    (library.folder / "Ben.pronunciation.txt").write_text("a = b", encoding="utf-8")
    assert library.load("Ben", lambda _: ANNA).pronunciation[0].words == (("a", "b"),)


def test_a_voice_is_saved_with_its_list_of_words(library: VoiceLibrary) -> None:
    (library.folder / "Anna.pronunciation.txt").write_text("Nguyen = win", encoding="utf-8")
    voice, path = library.load("Anna"), library.path("Eva")
    beside = module.list_of(path)
    module.save_source(ANNA, path)
    assert not beside.exists(), "a voice without a list leaves no file"
    module.save_list(voice, path)
    assert beside.read_text(encoding="utf-8") == "Nguyen = win\n"
    beside.write_text("Nguyen = new yen", encoding="utf-8")
    module.save_list(voice, path)
    assert beside.read_text(encoding="utf-8") == "Nguyen = new yen"
    assert module.save_source(voice, path).name == "Eva"
    module.save_source(ANNA, path)
    assert beside.read_text(encoding="utf-8") == "Nguyen = win\n"
