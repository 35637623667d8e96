"""Finding checkpoints where users keep them, and naming the files that an incomplete one lacks."""

import json
import shutil
from pathlib import Path

import pytest
from qwen3_tts_morph.morph.checkpoint import find as checkpoint_module
from qwen3_tts_morph.morph.checkpoint.download import fetch_checkpoint
from qwen3_tts_morph.morph.checkpoint.find import (
    DEMO_VOICE,
    DEMO_VOICE_PATH,
    NEEDED_FILES,
    PUBLISHED,
    check_complete,
    is_checkpoint,
    list_checkpoints,
    missing_files,
    resolve_checkpoint,
)

ALL_FILES = (
    *NEEDED_FILES,
    "vocab.json",
    "merges.txt",
    "model.safetensors",
    "speech_tokenizer/model.safetensors",
)
BASE = "Qwen3-TTS-12Hz-0.6B-Base"


def put(path: Path, without: tuple[str, ...] = ()) -> Path:
    """Create a checkpoint's files without content: finding only looks at names."""
    for name in ALL_FILES:
        if name not in without:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(json.dumps({"model_type": "qwen3_tts"}), encoding="utf-8")
    return path


@pytest.fixture
def no_hub(tmp_path, monkeypatch) -> Path:
    """An empty Hugging Face cache, and no network."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return cache


def test_a_written_checkpoint_is_complete(checkpoint):
    path = checkpoint("tiny", "base")
    assert missing_files(path) == []
    assert check_complete(path) == path


def test_checkpoints_of_all_roots_are_listed_with_forward_slashes(tmp_path):
    one = put(tmp_path / "qwen-tts" / BASE)
    two = put(tmp_path / "tts" / "Qwen3TTS" / "mine")
    assert list_checkpoints([tmp_path / "tts", tmp_path / "qwen-tts", tmp_path / "absent"]) == {
        f"qwen-tts/{BASE}": one,
        "tts/Qwen3TTS/mine": two,
    }
    assert resolve_checkpoint("tts/Qwen3TTS/mine", [tmp_path / "tts"]) == two


def test_what_is_no_checkpoint_is_not_listed(tmp_path):
    root = tmp_path / "TTS"
    put(root / "one" / "two" / "three")  # too deep
    put(root / ".cache")
    (root / "other").mkdir()
    (root / "other" / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{", encoding="utf-8")
    (root / "list").mkdir()
    (root / "list" / "config.json").write_text("[]", encoding="utf-8")
    (root / "latin").mkdir()
    (root / "latin" / "config.json").write_bytes(b'{"model_type": "\xff"}')
    (root / "file.txt").write_text("", encoding="utf-8")
    assert list_checkpoints([root]) == {}
    assert is_checkpoint(put(root / "good"))


def test_a_checkpoints_own_folders_are_not_searched(tmp_path):
    put(put(tmp_path / "tts" / "mine") / "checkpoint-100")
    assert list(list_checkpoints([tmp_path / "tts"])) == ["tts/mine"]


def link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target, target_is_directory=True)
    except OSError:
        pytest.skip("this user may not make links")


def test_a_folder_reached_twice_is_listed_once(tmp_path):
    one = put(tmp_path / "TTS" / "mine")
    link(tmp_path / "tts-link", tmp_path / "TTS")
    link(tmp_path / "TTS" / "same", one)
    assert list_checkpoints([tmp_path / "TTS", tmp_path / "tts-link", tmp_path / "TTS"]) == {"TTS/mine": one}


def test_roots_of_one_name_keep_both_checkpoints(tmp_path):
    roots = [tmp_path / place / "TTS" for place in ("a", "b", "c")]
    paths = [put(root / "mine") for root in roots]
    found = list_checkpoints(roots)
    assert list(found.values()) == paths and len(found) == 3
    assert [resolve_checkpoint(label, roots) for label in found] == paths


def test_a_published_id_is_found_by_its_last_part_in_any_case(tmp_path, no_hub):
    put(tmp_path / "TTS" / "Qwen3-TTS-12Hz-0.6B")  # a shorter name is another model
    path = put(tmp_path / "TTS" / "Qwen" / BASE.lower())
    assert resolve_checkpoint(f"Qwen/{BASE}", [tmp_path / "TTS"]) == path
    assert resolve_checkpoint("Qwen/Qwen3-TTS-12Hz-1.7B-Base", [tmp_path / "TTS"]) is None


def test_an_incomplete_one_is_listed_but_not_used_for_a_published_id(tmp_path, no_hub):
    half = put(tmp_path / "a" / BASE, without=("model.safetensors",))
    roots = [tmp_path / "a", tmp_path / "b"]
    assert list_checkpoints(roots) == {f"a/{BASE}": half}
    assert resolve_checkpoint(f"a/{BASE}", roots) == half
    assert resolve_checkpoint(f"Qwen/{BASE}", roots) is None
    whole = put(tmp_path / "b" / BASE)
    assert resolve_checkpoint(f"Qwen/{BASE}", roots) == whole


@pytest.mark.parametrize("name", ALL_FILES)
def test_each_missing_file_is_named(tmp_path, name):
    path = put(tmp_path / "mine", without=(name,))
    assert missing_files(path) == [name]
    with pytest.raises(ValueError, match=f"checkpoint mine lacks {name}: download it again"):
        check_complete(path)


@pytest.mark.parametrize("folder", ["", "speech_tokenizer"])
@pytest.mark.parametrize("pickled", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_weights_in_a_pickle_are_to_be_saved_again_and_not_downloaded(tmp_path, folder, pickled):
    name = f"{folder}/model.safetensors".lstrip("/")
    path = put(tmp_path / "mine", without=(name,))
    (path / folder / pickled).write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=rf"lacks {name}: it has \S*{pickled}, a pickle.*save_pretrained"):
        check_complete(path)


def test_an_adapter_beside_the_weights_is_to_be_merged(tmp_path):
    """transformers with peft would load the model that the adapter names instead of this one."""
    path = put(tmp_path / "mine")
    (path / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine has an adapter that is not merged .*: merge it into"):
        check_complete(path)
    (path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"checkpoint mine is a LoRA adapter: load the checkpoint that it was"):
        check_complete(path)


def test_files_that_trainers_leave_out_are_those_of_the_checkpoint_before(tmp_path):
    folders = [tmp_path / name for name in ("mine", BASE)]
    for folder in folders:
        put(folder, without=("vocab.json", "merges.txt", "speech_tokenizer/config.json"))
    with pytest.raises(
        ValueError, match=r"lacks speech_tokenizer/config.json, vocab.json, merges.txt: .* or copy them"
    ):
        check_complete(folders[0])
    with pytest.raises(ValueError, match=r"download it again$"):
        check_complete(folders[1])


def test_a_git_lfs_pointer_is_not_a_weight_file(tmp_path):
    path = put(tmp_path / "mine")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n"
    (path / "speech_tokenizer" / "model.safetensors").write_text(pointer, encoding="utf-8")
    with pytest.raises(ValueError, match=r"speech_tokenizer/model.safetensors \(it is only a Git LFS pointer\)"):
        check_complete(path)


def test_the_demo_voice_is_found_whatever_the_model_folders(tmp_path):
    put(tmp_path / "tts" / DEMO_VOICE)
    for roots in ([], [tmp_path / "absent"], [tmp_path / "tts"]):
        assert resolve_checkpoint(DEMO_VOICE, roots) == DEMO_VOICE_PATH
    assert check_complete(DEMO_VOICE_PATH).parent == Path(checkpoint_module.__file__).resolve().parents[2]


def test_an_incomplete_demo_voice_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(
        checkpoint_module, "DEMO_VOICE_PATH", put(tmp_path / "demo_voice", without=("model.safetensors",))
    )
    with pytest.raises(ValueError, match=r"demo_voice folder lacks model\.safetensors: install the pack again, or"):
        resolve_checkpoint(DEMO_VOICE, [])
    other = put(tmp_path / "tts" / "mine")
    assert resolve_checkpoint("tts/mine", [tmp_path / "tts"]) == other


def test_a_fast_tokenizer_serves_for_vocabulary_and_merges(tmp_path):
    path = put(tmp_path / "mine", without=("vocab.json", "merges.txt"))
    assert missing_files(path) == ["vocab.json", "merges.txt"]
    (path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert missing_files(path) == []


def test_all_shards_of_an_index_are_needed(tmp_path):
    path = put(tmp_path / "mine", without=("model.safetensors",))
    shards = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}), encoding="utf-8")
    assert missing_files(path) == ["model-1.safetensors", "model-2.safetensors"]
    (path / "model-1.safetensors").write_bytes(b"")
    assert missing_files(path) == ["model-2.safetensors"]
    (path / "model-2.safetensors").write_bytes(b"")
    assert missing_files(path) == []


def test_a_folder_that_is_gone_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folder mine does not exist"):
        check_complete(tmp_path / "mine")


def test_an_unknown_label_is_refused(tmp_path):
    put(tmp_path / "TTS" / "mine")
    with pytest.raises(ValueError, match="'TTS/yours' no longer exists: press R"):
        resolve_checkpoint("TTS/yours", [tmp_path / "TTS"])


def hub_snapshot(cache: Path, repo_id: str) -> Path:
    repo = cache / ("models--" + repo_id.replace("/", "--"))
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    return put(repo / "snapshots" / ("0" * 40))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_id_that_is_nowhere_gives_none(tmp_path, no_hub, name):
    assert resolve_checkpoint(name, [tmp_path / "TTS"]) is None


def test_what_another_program_downloaded_is_used_if_it_is_complete(no_hub):
    path = hub_snapshot(no_hub, PUBLISHED[0])
    assert resolve_checkpoint(PUBLISHED[0], []) == path
    assert resolve_checkpoint(PUBLISHED[1], []) is None
    shutil.rmtree(path / "speech_tokenizer")
    assert resolve_checkpoint(PUBLISHED[0], []) is None


def test_offline_the_real_hub_client_is_refused_in_one_sentence(tmp_path, monkeypatch):
    """No fake: huggingface_hub itself, told to stay offline, in whichever version is installed."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=rf"{PUBLISHED[0]} is not on this machine.*offline.*check the connection"):
        fetch_checkpoint(PUBLISHED[0], tmp_path / "models")
    assert not (tmp_path / "models").exists(), "an empty folder would look like a broken checkpoint"
