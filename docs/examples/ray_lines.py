"""Speak a list of lines on a Ray cluster, a WAV file per line; run it again and only what is missing is made.

    python docs/examples/ray_lines.py lines.jsonl speech --workers 8 --gpus 1

``lines.jsonl`` has an object per line: ``{"name": "0001", "text": "Good morning!", "speaker": "heart", "seed": 7}``.
The folder of the files, and this repository, must be at the same path on every host.

It needs ``pip install "ray[data]"`` beside the pack's requirements.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
BATCH = 64  # lines that a worker gets at a time; it decodes 8 of them together


class Speak:
    """A worker: one model, in a process of Ray.

    Args:
        root: the repository.
        folder: where files go.
        checkpoint: a folder; None: the demo voice.
    """

    def __init__(self, root: str, folder: str, checkpoint: str | None):
        spec = importlib.util.spec_from_file_location("pack", f"{root}/pack.py")
        pack = importlib.util.module_from_spec(spec)  # the pack is not installed: it is loaded by its path
        spec.loader.exec_module(pack)
        pack.load()
        from qwen3_tts_morph.morph.batch.batch import Batch
        from qwen3_tts_morph.morph.checkpoint.find import demo_voice
        from qwen3_tts_morph.morph.synthesizer import Synthesizer
        from qwen3_tts_morph.serve.terminal.engine import choose_device

        path = Path(checkpoint) if checkpoint else demo_voice()
        self.folder = Path(folder)
        synthesizer = Synthesizer.load(path, device=choose_device("auto"))
        self.model, self.speaks = synthesizer.model, Batch(synthesizer)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Speak a batch of lines; return their names and how they ended."""
        from qwen3_tts_morph.morph.kept.render import speak_lines
        from qwen3_tts_morph.morph.options import GenerateOptions
        from qwen3_tts_morph.morph.speech.lines import Line
        from qwen3_tts_morph.morph.voice.create import preset_voice

        lines = [
            Line(str(text), preset_voice(self.model, str(speaker)), seed=int(seed))
            for text, speaker, seed in zip(batch["text"], batch["speaker"], batch["seed"], strict=True)
        ]
        names, ends = [str(name) for name in batch["name"]], []
        for name, spoken in zip(names, speak_lines(self.speaks, lines, GenerateOptions()), strict=True):
            ends.append(spoken.report.ended)
            # A line that could not be made is asked for again by the next run.
            if spoken.report.ended != "error":
                write(self.folder / f"{name}.wav", spoken.waveform, spoken.sample_rate)
        return {"name": names, "ended": ends}


def write(path: Path, waveform: Any, sample_rate: int) -> None:
    """Write a file whole, or not at all: a worker may be killed at any time, and another make the same line."""
    import soundfile

    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    soundfile.write(unfinished, waveform, sample_rate, format="WAV", subtype="PCM_16")
    unfinished.replace(path)


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a JSONL file; ValueError for one without a text, or whose name is none for a file."""
    for number, row in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        line = {"speaker": "heart", "seed": number, **json.loads(row)}
        if not NAME.fullmatch(str(line.get("name", ""))) or not line.get("text"):
            raise ValueError(f"line {number}: give a name of letters and digits, and a text")
        yield {key: line[key] for key in ("name", "text", "speaker", "seed")}


def main(words: Sequence[str] | None = None) -> int:
    """Speak what is missing; return 0 if every line has a file, else 1."""
    parser = argparse.ArgumentParser(description="Speak a list of lines on a Ray cluster.")
    parser.add_argument("lines", type=Path, help="a JSONL file")
    parser.add_argument("folder", type=Path, help="where the WAV files go")
    parser.add_argument("--checkpoint", help="a Qwen3-TTS folder; none: the demo voice")
    parser.add_argument("--workers", type=int, default=1, help="how many models: at most a GPU or a core each")
    parser.add_argument("--gpus", type=int, default=0, help="of each worker: 1 on a GPU, 0 on a CPU")
    options = parser.parse_args(words)
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = list(read_lines(options.lines))
    missing = [line for line in wanted if not (options.folder / f"{line['name']}.wav").exists()]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} lines have a file")
    if missing:
        speak(missing, options)
    left = [line["name"] for line in wanted if not (options.folder / f"{line['name']}.wav").exists()]
    print(f"{len(missing) - len(left)} made, {len(left)} not made: {' '.join(left[:20])}")
    return 1 if left else 0


def speak(lines: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Speak lines on the cluster of this host, or of RAY_ADDRESS; where there is none, on this host."""
    import ray

    ray.init(include_dashboard=False)
    # A short list is one block, which one worker would get whole: it is cut into a block for each, and more. That is
    # done before workers start: they would hold the processors that it needs.
    blocks = max(options.workers, -(-len(lines) // BATCH))
    given = ray.data.from_items(list(lines)).repartition(blocks).materialize()
    made = given.map_batches(
        Speak,
        fn_constructor_args=(str(ROOT), str(options.folder.resolve()), options.checkpoint),
        batch_size=BATCH,
        concurrency=options.workers,
        num_gpus=options.gpus,
    )
    for row in made.iter_rows():
        if row["ended"] != "eos":
            print(f"{row['name']}: {row['ended']}")
    ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
