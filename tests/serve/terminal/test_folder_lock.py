"""A folder belongs to one run at a time, also of another process, until that has ended in whatever way."""

import subprocess
import sys
from pathlib import Path

import pytest
from qwen3_tts_morph.serve.terminal.folder_lock import exclusive

from pack import ROOT

HOLD = """
import sys
import pack
pack.load()
from pathlib import Path
from qwen3_tts_morph.serve.terminal.folder_lock import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_run_is_refused_until_the_first_one_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline().strip() == b"held"
        with (
            pytest.raises(ValueError, match="is in use by another run: wait for its end"),
            exclusive(tmp_path),
        ):
            pass
        other.kill()
    with exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


def test_a_folder_in_use_is_one_sentence_of_the_command_line(run, tiny, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("RYAN: Hello.", encoding="utf-8")
    (tmp_path / "a.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nRYAN: Hello.\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    with exclusive(tmp_path / "out"):
        for words in (("script", "a.txt"), ("dub", "a.srt")):
            done = run(*words, "--out", "out", *tiny)
            assert done.code == 2 and "is in use by another run" in done.err
    assert list((tmp_path / "out").iterdir()) == []
