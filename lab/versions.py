"""Record the sound of some lines and the normalization of texts, for two versions in ``morph/batch/key.py``.

python -m lab.versions # after raising one of them; the tests compare (tests/morph/test_versions.py)
"""

import json
import platform
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.batch import key
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import LinePieces
from qwen3_tts_morph.morph.text.other_numbers import LANGUAGES
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.voice.voice import Voice

from pack import ROOT

from .benchmarks.recorded import Case, record

FILE = ROOT / "tests" / "data" / "versions.json"
EXAMPLES = ROOT / "tests" / "data" / "english_written.txt"
FIVE = GenerateOptions(5, trim_ends=True)
CASES = (
    Case("S=5", "graph", FIVE, ("complete",), 3),
    Case("S=15", "graph", replace(FIVE, seq_groups=15), ("complete",), 1),
    Case("S=1 int8", "graph", replace(FIVE, seq_groups=1), ("complete",), 1, weights="int8"),
    Case("S=5", "eager", FIVE, ("complete",), 1),
)
TOGETHER = 60  # examples in one text, which is cut
NUMBERS = "12, 1998. 21,5 (3rd) 100000; A4, 0.75!"
LIMITS = (0, 120)  # of a piece, in characters
NEAR, NEAR_RATIO = 5e-4, 0.02  # of the level of 80 ms: rounding is far below


def sound_now() -> dict[str, Any]:
    """Return the reports of the recorded lines, and the level of each 80 ms of their sound."""
    torch.set_num_threads(1)
    made = record(CASES)
    return {name: str(one) if one.dtype.kind == "U" else levels(one) for name, one in made.items()}


def levels(samples: np.ndarray) -> list[float]:
    frames = np.pad(samples, (0, -len(samples) % 1920)).reshape(-1, 1920)
    return [round(float(level), 4) for level in np.sqrt(np.square(frames).mean(axis=1))]


def texts_now() -> dict[str, str]:
    """Return a digest of the pieces of each normalization example."""
    rows = EXAMPLES.read_text(encoding="utf-8").splitlines()
    texts = [row.partition(" -> ")[0] for row in rows if " -> " in row]
    english = {text: pieces_of(text) for text in [*texts, " ".join(texts[:TOGETHER])]}
    return english | {language: pieces_of(NUMBERS, language) for language in LANGUAGES}


def pieces_of(text: str, language: str = "en") -> str:
    line = Line(text, Voice("design", "0b6", instruct="calm"))
    model: Any = SimpleNamespace(profile=TextProfile(normalize=language), sampling=Sampling())
    builder: Any = SimpleNamespace(model=model)
    said = []
    for limit in LIMITS:
        parts = LinePieces(line, FIVE, builder)
        parts.limit = limit
        pieces = list(parts.split(text, parts.normalizer))
        parts.end_text(pieces)
        said.append([(one.text, one.seed, one.pause_s, one.after_s) for one in pieces])
    return sha256(repr(said).encode()).hexdigest()[:12]


MAKERS: dict[str, Callable[[], dict[str, Any]]] = {"SOUND_VERSION": sound_now, "TEXT_VERSION": texts_now}


def here() -> dict[str, str]:
    """Return the versions that determine how sums are rounded."""
    return {"torch": torch.__version__.partition("+")[0], "machine": platform.machine()}


def find_change(name: str) -> str:
    """Return what to do if the speech has changed without its version; "" if it has not."""
    known, version = json.loads(FILE.read_text(encoding="utf-8"))[name], getattr(key, name)
    if known["version"] != version:
        return f"{name} is {version}: run python -m lab.versions, and commit the file that it writes"
    before, after = known["made"], MAKERS[name]()
    changed = [one for one in before | after if differ(before.get(one), after.get(one))]
    if not changed:
        return ""
    return (
        f"{len(changed)} of {len(before)} recordings changed, such as {changed[0]!r}, and {name} is still {version}: "
        "raise it in morph/batch/key.py, so that users' kept lines are made again, and run python -m lab.versions"
    )


def differ(before: Any, after: Any) -> bool:
    if isinstance(before, list) and isinstance(after, list):
        return len(before) != len(after) or not np.allclose(before, after, NEAR_RATIO, NEAR)
    return bool(before != after)


def main() -> None:
    made = {name: {"version": getattr(key, name), "made": make()} for name, make in MAKERS.items()}
    FILE.write_text(json.dumps({"recorded on": here(), **made}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
