"""Voice files: bit-equal after loading, written atomically, and refused with a clear error if they are invalid."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.voice import file as voice_file
from qwen3_tts_morph.morph.voice.file import load_voice, save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from safetensors import safe_open
from safetensors.torch import save_file

EMBEDDING = torch.randn(64, generator=torch.Generator().manual_seed(0))
CODES = torch.randint(2048, (25, 16), generator=torch.Generator().manual_seed(1))
VOICES = {
    "x_vector fp32": Voice("x_vector", "0b6", "Anna", EMBEDDING),
    "x_vector bf16": Voice("x_vector", "1b7", "", EMBEDDING.bfloat16()),
    "icl": Voice("icl", "0b6", "Jürgen 李", EMBEDDING.bfloat16(), CODES, '„Ja“, "no"\n好'),
    "icl, codes not contiguous": Voice("icl", "0b6", "Anna", EMBEDDING, CODES.T.contiguous().T, "words"),
    "preset": Voice("preset", "1b7", "ryan", speaker="ryan", instruct="whispering"),
    "blend": Voice("blend", "0b6", "50% a + 50% b", EMBEDDING, speaker="a + b"),
    "shifted": Voice("x_vector", "0b6", "Anna (angry)", EMBEDDING, recipe="Anna + 1 * (angry – calm)"),
    "design": Voice("design", "1b7", "designed voice", instruct="an old man"),
}


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "anna.safetensors"
    save_voice(VOICES["icl"], path)
    return path


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("voice", VOICES.values(), ids=VOICES.keys())
def test_a_voice_comes_back_bit_equal(voice, tmp_path):
    path = tmp_path / "new folder" / "voice.safetensors"
    save_voice(voice, path)
    for back in (load_voice(path), load_voice(path, path.read_bytes())):
        for field in dataclasses.fields(Voice):
            ours, theirs = getattr(voice, field.name), getattr(back, field.name)
            equal = same(ours, theirs) if field.name in voice_file.TENSORS else ours == theirs
            assert equal, field.name
    assert [file.name for file in path.parent.iterdir()] == ["voice.safetensors"]


@pytest.mark.skipif(os.name == "nt", reason="not run: Windows has no umask")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_saved_voice_has_the_mode_of_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        save_voice(VOICES["icl"], tmp_path / "anna.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "anna.safetensors").stat().st_mode & 0o777 == mode


def test_a_file_that_is_deleted_while_it_is_read_is_missing(saved, monkeypatch):
    exists = Path.is_file

    def deleted(self: Path) -> bool:
        there = exists(self)
        saved.unlink(missing_ok=True)
        return there

    monkeypatch.setattr(Path, "is_file", deleted)
    assert not voice_file.is_voice_file(saved)
    save_voice(VOICES["icl"], saved)
    refused(saved, "is missing from")


def test_a_file_that_may_not_be_read_is_a_sentence(saved, monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(ValueError, match=r"anna.safetensors is damaged \(Permission denied\)"):
        load_voice(saved)


@pytest.mark.parametrize("change", ["overwritten", "truncated"])
def test_a_loaded_voice_does_not_depend_on_its_file(saved, change):
    """Were its tensors views of the mapped file, this would change them, or end the process with SIGBUS."""
    voice = load_voice(saved)
    size = saved.stat().st_size
    with saved.open("r+b") as file:
        if change == "overwritten":
            file.write(bytes(size))
        else:
            file.truncate(0)
    assert same(voice.speaker_embedding, VOICES["icl"].speaker_embedding)
    assert same(voice.ref_codes, CODES)


def test_every_field_of_a_voice_is_in_the_file():
    names = {field.name for field in dataclasses.fields(Voice)}
    kept_elsewhere = {"notes", "by", "pronunciation"}  # two of the moment, and a list beside the file
    assert names == {*voice_file.TENSORS, *voice_file.TEXTS, *kept_elsewhere}


def test_packs_of_before_read_a_voice_with_a_recipe_and_files_of_before_are_the_same(tmp_path):
    """They take the texts that they know out of the JSON, and check the sum of what is there."""
    texts = {}
    for name in ("shifted", "x_vector fp32"):
        path = tmp_path / f"{name}.safetensors"
        save_voice(VOICES[name], path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        texts[name] = json.loads(metadata["voice"])
        assert metadata["sha256"] == voice_file.digest(metadata["voice"], {"speaker_embedding": EMBEDDING})
        assert (metadata["format"], metadata["version"]) == ("qwen3-tts-voice", "1")
    before = ["kind", "model_size", "name", "transcript", "speaker", "instruct"]
    assert list(texts["shifted"]) == [*before, "recipe"] and list(texts["x_vector fp32"]) == before
    shifted = VOICES["shifted"]
    plain = dataclasses.replace(shifted, name="other", recipe=None)
    assert voice_file.voice_digest(plain) == voice_file.voice_digest(shifted), "it sounds the same"


def refused(path: Path, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        load_voice(path)
    assert path.name in str(caught.value)
    if path.is_file() and path.stat().st_size <= voice_file.MOST_BYTES:
        with pytest.raises(ValueError, match=sentence):
            load_voice(path, path.read_bytes())


def rewrite(path: Path, **changed: str | None) -> None:
    """Write the file again with changed metadata; None removes a key."""
    with safe_open(path, framework="pt") as file:
        metadata = {**file.metadata(), **changed}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={key: value for key, value in metadata.items() if value is not None})


def test_a_later_version_is_refused(saved):
    rewrite(saved, version="2")
    refused(saved, "version 2 and this pack reads 1: update the pack")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_foreign_file_is_refused(tmp_path, metadata):
    path = tmp_path / "model.safetensors"
    save_file({"speaker_embedding": EMBEDDING}, path, metadata=metadata)
    refused(path, "not a voice file of this pack")


def test_a_missing_file_is_refused(tmp_path):
    refused(tmp_path / "gone.safetensors", "is missing")
    (tmp_path / "folder.safetensors").mkdir()
    refused(tmp_path / "folder.safetensors", "is missing")


@pytest.mark.parametrize("existing", [False, True])
def test_a_save_that_fails_leaves_nothing_half_written(tmp_path, monkeypatch, existing):
    path = tmp_path / "anna.safetensors"
    if existing:
        save_voice(VOICES["preset"], path)

    def fail(*_: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_voice(VOICES["icl"], path)
    assert [file.name for file in tmp_path.iterdir()] == (["anna.safetensors"] if existing else [])
    if existing:
        assert load_voice(path).speaker == "ryan"


@pytest.mark.skipif(os.name == "nt", reason="not run: Windows does not replace a file that is open")
def test_a_file_that_is_replaced_while_it_is_read_is_whole(saved, monkeypatch):
    """Its metadata and its tensors are those of one file, the old or the new one."""

    opened = Path.open

    def open_and_replace(self: Path, *mode: str):
        file = opened(self, *mode)
        monkeypatch.setattr(Path, "open", opened)
        save_voice(VOICES["preset"], saved, "calm")
        return file

    monkeypatch.setattr(Path, "open", open_and_replace)
    voice, description = voice_file.read_voice(saved)
    assert (voice.transcript, description) == (VOICES["icl"].transcript, "") and same(voice.ref_codes, CODES)
    assert load_voice(saved).speaker == "ryan"


def test_a_link_beside_the_file_is_not_written_through(saved):
    """Whoever may write to the folder could make Save Voice write anywhere."""
    outside = saved.parent.parent / f"{saved.parent.name} outside.txt"
    outside.write_bytes(b"mine")
    try:
        (saved.parent / f"{saved.name}.part").symlink_to(outside)
    except OSError:
        pytest.skip("not run: this system does not allow links")
    save_voice(VOICES["preset"], saved)
    assert outside.read_bytes() == b"mine" and not saved.is_symlink() and load_voice(saved).speaker == "ryan"


@pytest.mark.parametrize("position", ["tensor data", "dtype", "texts"])
def test_one_changed_byte_anywhere_is_noticed(tmp_path, position):
    path = tmp_path / "voice.safetensors"
    embedding = torch.arange(8, dtype=torch.float32)
    save_voice(Voice("x_vector", "0b6", "Anna", speaker_embedding=embedding), path)
    whole = path.read_bytes()
    changed = {
        "tensor data": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        "dtype": whole.replace(b'"F32"', b'"I32"'),
        "texts": whole.replace(b"Anna", b"Anne"),
    }[position]
    assert changed != whole
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"voice\.safetensors is damaged .*checksum.*save the voice again"):
        load_voice(path)
