"""Other packs' nodes give empty lists, for a blank text, say: one sentence that names the input."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import comfy.cli_args
comfy.cli_args.args.cpu = True
import pack
pack.load()
from qwen3_tts_morph.nodes.sound.audio import JoinAudio
from qwen3_tts_morph.nodes.speaking.generate import GenerateSpeech
from qwen3_tts_morph.nodes.saving.save import SaveSpeech

for name, run in {
    "text": lambda: GenerateSpeech.execute(model=[None], voice=[None], text=[], seed=[0]),
    "voice": lambda: GenerateSpeech.execute(model=[None], voice=[], text=["Hello."], seed=[0]),
    "audio": lambda: JoinAudio.execute([], [0.3], [0.0]),
    " audio": lambda: SaveSpeech.execute([], ["speech"], ["flac"], [96]),
}.items():
    try:
        run()
    except ValueError as error:
        assert str(error).startswith(f"{name.strip()} is an empty list: "), error
    else:
        raise AssertionError(name)
print("all refused")
"""


def test_an_empty_list_is_refused(comfy_dir: Path, comfy_python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [comfy_python, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(comfy_dir), str(ROOT)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "all refused", done.stderr
    assert list(tmp_path.iterdir()) == []
