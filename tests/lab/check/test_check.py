"""``python -m lab.check``: what is tested of a checkpoint, and what the report says."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.check import __main__ as check
from lab.check import parity
from lab.check.alignment import HeadScore


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., SimpleNamespace]:
    """``run(*words)``: the program in an empty folder; its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> SimpleNamespace:
        try:
            code = check.main([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        streams = capsys.readouterr()
        return SimpleNamespace(code=code, out=streams.out, err=streams.err)

    return call


@pytest.mark.parametrize("kind", ["custom_voice", "base"])
def test_a_good_checkpoint_passes_and_the_report_says_on_what(run, checkpoint, tmp_path, kind) -> None:
    done = run("--frames", "4", "--text", "Yes.", "--checkpoint", checkpoint("tiny", kind), "--out", "a.md")
    assert done.code == 0 and done.out == f"{tmp_path / 'a.md'}\n", done.err
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [one["outcome"] for one in found["findings"]] == ["ok", "ok", "not run", "not run", "ok", "ok"]
    assert found["findings"][0]["figures"] == {"frames": 4, "equal": 4}
    assert [one["seq_groups"] for one in found["speed"]] == [15, 5]
    assert {"pack", "torch", "transformers", "python"} | {"processor"} <= set(found["machine"])
    written = (tmp_path / "a.md").read_text("utf-8")
    assert "- **ok**: eager engine" in written and f"tiny-{kind} (0.6B" in written
    assert str(tmp_path) not in written + json.dumps(found)  # it goes into a public issue


def test_the_line_for_morph_json_is_printed_or_that_no_head_follows_the_text(
    run: Callable, checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--alignment", "--text", "Yes.", "--checkpoint", checkpoint("tiny", "custom_voice"))
    done = run(*words)
    assert done.code == 1 and not done.out and "No head follows the text" in done.err
    best, other = HeadScore(1, 2, 0.97, 0.93, 0.8), HeadScore(0, 0, 0.4, 0.1, 0.5)
    monkeypatch.setattr(check, "score_heads", lambda *_: [best, other])
    done = run(*words)
    assert done.code == 0 and json.loads(f"{{{done.out}}}") == {"alignment": {"layer": 1, "head": 2}}
    assert "layer 1 head 2: 97% diagonal (the worst line 93%), 80% of its attention on the text" in done.err
    assert list(tmp_path.iterdir()) == []


def test_other_codes_than_upstreams_fail(run, checkpoint, tmp_path, monkeypatch) -> None:
    theirs = parity.upstream_codes
    monkeypatch.setattr(parity, "upstream_codes", lambda *call: theirs(*call) + 1)
    done = run("--frames", "4", "--text", "Yes.", "--checkpoint", checkpoint("tiny", "custom_voice"), "--out", "a.md")
    assert done.code == 1 and "**FAILED**: eager engine" in done.err and "0 of 4 frames equal" in done.err
    assert (tmp_path / "a.md").exists()
