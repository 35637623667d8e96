"""Judge every line once. Existing judgements are kept; judges that are not installed are skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from ...judges.clips import load_clip
from .folder import JUDGED, REFERENCES, WAVS, RunFolder, read_json, write_json

log = logging.getLogger("lab.benchmarks.quality")

FIX = "pip install -r lab/judges/requirements.txt, then pip install --no-deps -r lab/judges/requirements-no-deps.txt"


class Judge(Protocol):
    """Judges 16 kHz mono audio against the text it should say; returns a value that JSON can store."""

    def judge(self, audio: np.ndarray, text: str) -> dict[str, Any]: ...


class WordJudge:
    """Word and character errors by whisper-base; English only."""

    def __init__(self, whisper: Path):
        from ...judges.asr import Recogniser

        self._recogniser = Recogniser(whisper)

    def judge(self, audio: np.ndarray, text: str) -> dict[str, Any]:
        return asdict(self._recogniser.judge(audio, text))


class VoiceJudge:
    """Resemblyzer's speaker embedding; None for audio without speech."""

    def __init__(self) -> None:
        from ...judges.speaker import SpeakerEncoder

        self._encoder = SpeakerEncoder()

    def judge(self, audio: np.ndarray, text: str) -> dict[str, Any]:
        try:
            values = self._encoder.embed(audio)
        except ValueError:  # no speech in the audio
            return {"embedding": None}
        return {"embedding": [round(float(value), 6) for value in values]}


class OpinionJudge:
    """DistillMOS and DNSMOS."""

    def __init__(self) -> None:
        from ...judges.mos import OpinionJudge

        self._opinions = OpinionJudge()

    def judge(self, audio: np.ndarray, text: str) -> dict[str, Any]:
        return asdict(self._opinions.judge(audio))


def make_judges(whisper: Path, language: str) -> dict[str, Judge]:
    """Return the installed judges by name; log one line for each missing one."""
    makers: dict[str, Callable[[], Judge]] = {
        "words": lambda: WordJudge(whisper),
        "voice": VoiceJudge,
        "opinion": OpinionJudge,
    }
    if language not in ("auto", "english"):
        log.warning("words are not judged: the recogniser normalises English only, the lines are %s", language)
        del makers["words"]
    judges: dict[str, Judge] = {}
    for name, make in makers.items():
        try:
            judges[name] = make()
        except ImportError as error:
            log.warning("%s not judged, its columns stay empty: %s (%s)", name, error, FIX)
    return judges


@dataclass(frozen=True)
class Clip:
    """A sound file to judge, what it should say, and the path of its verdict."""

    sound: Path
    text: str
    verdict: Path


def clips_of(folder: RunFolder, conditions: Sequence[str], texts: Sequence[str]) -> list[Clip]:
    """Return all clips of these conditions, and the voices' references."""
    clips = [
        Clip(
            folder.path(WAVS, condition, line, ".wav"),
            text,
            folder.path(JUDGED, condition, line),
        )
        for condition in conditions
        for line, text in enumerate(texts)
    ]
    for sound in sorted((folder.root / REFERENCES).glob("*/*.wav")):
        verdict = folder.root / JUDGED / REFERENCES / sound.parent.name / f"{sound.stem}.json"
        clips.append(Clip(sound, "", verdict))
    return clips


def judge_clip(clip: Clip, judges: dict[str, Judge]) -> None:
    """Add the missing judgements to a clip's verdict; a reference is judged for its speaker only."""
    verdict = read_json(clip.verdict) or {}
    missing = [name for name in judges if name not in verdict and (clip.text or name == "voice")]
    if not missing:
        return
    audio = load_clip(clip.sound)
    for name in missing:
        verdict[name] = judges[name].judge(audio, clip.text)
    write_json(clip.verdict, verdict)


def judge_all(clips: Sequence[Clip], judges: dict[str, Judge]) -> None:
    """Judge the clips whose verdicts lack any of these judges."""
    todo = [clip for clip in clips if not _complete(clip, judges)]
    for clip in tqdm(todo, desc="judging", unit="line", disable=not todo):
        judge_clip(clip, judges)


def _complete(clip: Clip, judges: dict[str, Judge]) -> bool:
    verdict = read_json(clip.verdict) or {}
    return all(name in verdict for name in judges if clip.text or name == "voice")
