"""``check``, ``bench`` and ``sweep``: what is measured, and where it is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.study import alignment, parity
from qwen3_tts_morph.morph.study.alignment import HeadScore
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.serve.commands import check, speed
from safetensors.torch import load_file, save_file


@pytest.mark.parametrize("kind", ["custom_voice", "base"])
def test_a_good_checkpoint_passes_and_the_report_says_on_what(
    run: Callable, checkpoints: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    done = run("check", "--frames", "4", "--text", "Yes.", "--checkpoint", checkpoints(kind), "--out", "a.md")
    assert done.code == 0 and done.lines == [str(tmp_path / "a.md")], done.err
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [one["outcome"] for one in found["findings"]] == ["ok", "ok", "not run", "not run", "ok", "ok"]
    assert found["findings"][0]["figures"] == {"frames": 4, "equal": 4}
    assert [one["seq_groups"] for one in found["speed"]] == [15, 5]
    assert {"pack", "torch", "transformers", "python"} | {"processor"} <= set(found["machine"])
    written = (tmp_path / "a.md").read_text("utf-8")
    assert "- **ok**: eager engine" in written and f"tiny-{kind} (0.6B" in written
    assert str(tmp_path) not in written + json.dumps(found)  # it goes into a public issue


def test_the_line_for_morph_json_is_printed_or_that_no_head_follows_the_text(
    run: Callable, checkpoints: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("check", "--alignment", "--text", "Yes.", "--checkpoint", checkpoints())
    done = run(*words)
    assert done.code == 1 and not done.lines and "No head follows the text" in done.err
    best, other = HeadScore(1, 2, 0.97, 0.93, 0.8), HeadScore(0, 0, 0.4, 0.1, 0.5)
    monkeypatch.setattr(alignment, "score_heads", lambda *_: [best, other])
    done = run(*words)
    assert done.code == 0 and json.loads(f"{{{done.lines[0]}}}") == {"alignment": {"layer": 1, "head": 2}}
    assert "layer 1 head 2: 97% diagonal (the worst line 93%), 80% of its attention on the text" in done.err
    assert list(tmp_path.iterdir()) == []


def test_other_codes_than_upstreams_fail(
    run: Callable, checkpoints: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = parity.upstream_codes
    monkeypatch.setattr(parity, "upstream_codes", lambda *call: theirs(*call) + 1)
    done = run("check", "--frames", "4", "--text", "Yes.", "--checkpoint", checkpoints(), "--out", "a.md")
    assert done.code == 1 and "**FAILED**: eager engine" in done.err and "0 of 4 frames equal" in done.err
    assert (tmp_path / "a.md").exists()


def test_a_test_that_breaks_has_failed_and_the_others_run(
    run: Callable, checkpoints: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no kernel image is available\nfor this device")

    monkeypatch.setattr(parity, "compare_engines", broken)
    done = run("check", "--frames", "4", "--text", "Yes.", "--checkpoint", checkpoints(), "--out", "a.md")
    assert done.code == 1 and "**FAILED**: graph engine" in done.err
    assert "RuntimeError: no kernel image is available." in done.err and "**ok**: a stream" in done.err


def damaged(checkpoint: Path, target: Path, part: str, value: float) -> Path:
    """Copy a checkpoint with all weights of one file replaced by one value."""
    shutil.copytree(checkpoint, target)
    path = target / part
    tensors = load_file(path)
    metadata = {"format": "pt"}
    save_file({name: torch.full_like(one, value) for name, one in tensors.items()}, path, metadata)
    return target


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("speech_tokenizer/model.safetensors", 0.0, "**FAILED**: a line is heard"),
        ("model.safetensors", float("nan"), "**FAILED**: speed"),
    ],
)
def test_a_damaged_checkpoint_fails_and_has_its_report(
    run: Callable, checkpoints: Callable[..., Path], tmp_path: Path, part: str, value: float, said: str
) -> None:
    broken = damaged(checkpoints(), tmp_path / "broken", part, value)
    done = run("check", "--frames", "4", "--text", "Yes.", "--checkpoint", broken, "--out", "a.md")
    assert done.code == 1 and said in done.err
    assert said in (tmp_path / "a.md").read_text("utf-8") and (tmp_path / "a.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["--text", "\U0001f600"], "letter"), (["--text", "Yes.", "--language", "xx"], "language")],
)
def test_a_line_that_cannot_be_spoken_is_refused_before_the_tests(
    run: Callable,
    checkpoints: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.setattr(check, "run_test", lambda *_: pytest.fail("a test ran"))
    done = run("check", *words, "--checkpoint", checkpoints(), "--out", "a.md")
    assert done.code == 2 and sentence in done.err and "Traceback" not in done.err
    assert not (tmp_path / "a.md").exists()


def test_a_sweep_into_a_folder_that_cannot_be_written_is_refused_before_it_begins(
    run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch = Path.touch

    def refused(path: Path, **more: object) -> None:
        if path.parent.name == "out":
            raise PermissionError(13, "Permission denied")
        touch(path, **more)

    monkeypatch.setattr(Path, "touch", refused)
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    done = run("sweep", "Yes.", "--out", "out")
    assert done.code == 2 and "cannot be written (Permission denied): choose another" in done.err


def test_an_infinite_distance_is_no_json_number() -> None:
    assert check._finite(float("inf")) is None and check._finite(81.234) == 81.2


def test_the_table_has_a_row_for_each_setting(run: Callable, tiny: list[str]) -> None:
    done = run("bench", "Yes.", "--groups", "15, 5", "--repeats", "1", *tiny)
    assert done.code == 0, done.err
    assert [line.split("|")[1].strip() for line in done.lines] == ["SEQ_GROUPS", "---------:", "5", "15"]
    assert "engine: graph" in done.err
    rows = json.loads(run("bench", "Yes.", "--groups", "5", "--repeats", "1", "--json", *tiny).out)
    assert rows["speed"][0]["frames"] == 6 and set(rows["speed"][0]) >= {"ms_per_frame", "rtf", "first_ms"}
    wrong = run("bench", "Yes.", "--groups", "16", *tiny)
    assert wrong.code == 2 and "SEQ_GROUPS is 16" in wrong.err
    assert "leave --decoding out" in run("bench", "Yes.", "--decoding", "lossless", *tiny).err


def test_a_speeds_cells_are_its_numbers() -> None:
    assert speed.Speed(5, 10, 12.34, 0.1543, 99.6).row() == ["5", "10", "12.3", "0.154", "100"]


def test_a_sweep_writes_recordings_and_a_plot(run: Callable, tiny: list[str], tmp_path: Path) -> None:
    done = run("sweep", "Yes.", "--groups", "1,15", "--out", "out", *tiny)
    assert done.code == 0 and done.lines[0].startswith("| SEQ_GROUPS"), done.err
    assert len(done.lines) == 4
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["groups_01.wav", "groups_15.wav", "sweep.png"]
    assert "leave --decoding out" in run("sweep", "Yes.", "--decoding", "lossless", *tiny).err
