"""Which checkpoint, device and sampling the options name."""

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from qwen3_tts_morph.morph.batch.key import common_key
from qwen3_tts_morph.morph.checkpoint.find import PUBLISHED, demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.serve.cli import parse
from qwen3_tts_morph.serve.terminal import engine
from qwen3_tts_morph.serve.terminal.console import Console
from qwen3_tts_morph.serve.terminal.engine import read_config
from qwen3_tts_morph.serve.terminal.folders import OWN

from tests.morph.adapters import write_adapter

NOWHERE = Console("x", None, None)  # type: ignore[arg-type]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """``read(*words)``: the options of ``speak``."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: parse("speak", ["Yes.", *map(str, words)])[1]


def test_a_checkpoint_is_a_folder_a_label_or_a_name(read, checkpoints, tmp_path) -> None:
    comfyui, own = tmp_path / "ComfyUI", checkpoints()
    (comfyui / "models" / "TTS").mkdir(parents=True)
    found = comfyui / "models" / "TTS" / "mine"
    shutil.copytree(own, found)

    def find(*words: object) -> Path:
        return engine.find_checkpoint(read(*words), NOWHERE)

    assert find() == demo_voice()
    assert find("--checkpoint", own) == own
    assert find("--checkpoint", "mine", "--comfyui", comfyui) == found
    assert find("--checkpoint", "TTS/mine", "--comfyui", comfyui) == found
    with pytest.raises(ValueError, match=r"checkpoint yours is neither .* \(found: TTS/mine\): give its folder"):
        find("--checkpoint", "yours", "--comfyui", comfyui)


def test_a_published_checkpoint_that_is_not_here_is_downloaded(read, tmp_path, monkeypatch, capsys) -> None:
    import sys

    calls = []
    monkeypatch.setattr(engine, "fetch_checkpoint", lambda *call: calls.append(call) or tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    options = read("--checkpoint", PUBLISHED[0])
    assert engine.find_checkpoint(options, Console("x", sys.stdout, sys.stderr)) == tmp_path
    assert [call[:2] for call in calls] == [(PUBLISHED[0], tmp_path / "home" / OWN / "qwen-tts")]
    told = capsys.readouterr()
    assert f"downloading {PUBLISHED[0]}" in told.err and not told.out


def test_an_unknown_device_is_refused() -> None:
    assert engine.choose_device("cpu") == "cpu" and engine.choose_device("auto") in ("cpu", "cuda")
    for name in ("toaster", "cuda:x", "cpu:", ""):
        with pytest.raises(
            ValueError, match=rf"^device is '{name}', which torch does not know: choose cpu, cuda, cuda:N"
        ):
            engine.choose_device(name)
    with pytest.raises(ValueError, match=r"^device meta cannot be used .*: choose cpu, cuda, cuda:N or auto$"):
        engine.choose_device("meta")


def test_speakers_and_languages_are_known_before_a_checkpoint_is_loaded(checkpoints, tmp_path) -> None:
    for kind in ("custom_voice", "base"):
        config, model = read_config(checkpoints(kind)), load_model(checkpoints(kind))
        assert config is not None and config.name == model.name
        assert list(config.languages) == model.languages and list(config.speakers) == model.speakers
    for content in (
        "",
        "[]",
        "{}",
        '{"talker_config": 5}',
        '{"talker_config": {"spk_id": null, "codec_language_id": {}}}',
        '{"talker_config": {"spk_id": {}, "codec_language_id": "english"}}',
    ):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        assert read_config(tmp_path) is None, "loading it says what is wrong"
    assert read_config(tmp_path / "none") is None


def test_only_what_the_options_name_changes_the_checkpoints_sampling(read: Callable) -> None:
    model = Mock(sampling=Sampling(repetition_penalty=1.2))
    assert engine.make_settings(model, read()).sampling is None
    changed = engine.make_settings(model, read("--temperature", "0.5", "--max-seconds", "2")).sampling
    assert changed is not None
    assert (changed.talker.temperature, changed.subtalker.temperature) == (0.5, 0.5)
    assert (changed.talker.top_k, changed.repetition_penalty, changed.max_frames) == (50, 1.2, 25)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("anna", ("anna", 1.0)),
        ("anna:0.8", ("anna", 0.8)),
        ("a/b:-1", ("a/b", -1.0)),
        (r"C:\loras\anna", (r"C:\loras\anna", 1.0)),
        (r"C:\loras\anna:0.5", (r"C:\loras\anna", 0.5)),
    ],
)
def test_an_adapter_may_have_a_strength(read: Callable, word: str, expected: tuple[str, float]) -> None:
    assert read("--lora", word).lora == [expected] and read().lora == []


def test_adapters_and_their_strengths_change_the_key_of_lines(read, checkpoints, tmp_path) -> None:
    path = checkpoints()
    adapter = write_adapter(tmp_path / "anna", path)

    def key(*words: object) -> str:
        return common_key(engine.load_at(path, read("--checkpoint", path, *words)), GenerateOptions())

    assert len({key(), key("--lora", f"{adapter}:0.5"), key("--lora", adapter)}) == 3


@pytest.mark.parametrize(
    ("word", "sentence"),
    [("gone", "adapter gone is neither a folder nor in"), ("gone:9", "strength is 9.0: choose -4 to 4")],
)
def test_an_adapter_that_is_not_there_is_refused_before_the_model_is_loaded(
    read: Callable,
    checkpoints: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    sentence: str,
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(ValueError, match=sentence):
        engine.load_at(checkpoints(), read("--lora", word))
