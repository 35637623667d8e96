"""Compute word times: one JSON line in, its words out, until stdin ends. See ``WordProcess``."""

import json
import runpy
import signal
import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any

if not __package__:  # run by its path, which also works with a Python that ignores the current folder
    runpy.run_path(str(Path(__file__).resolve().parents[2] / "pack.py"))["load"]()

from qwen3_tts_morph.morph.words.traced import TracedLine


def answer(line: bytes) -> bytes:
    told: dict[str, Any] = {}
    try:
        told["words"] = [astuple(word) for word in TracedLine.from_json(json.loads(line)).words()]
    except ValueError as error:
        told["error"] = str(error)
    return json.dumps(told).encode() + b"\n"


def main() -> None:
    """Answer until stdin ends, as it does when the server does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the server
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answer(line))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
