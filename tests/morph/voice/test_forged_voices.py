"""Voice files whose checksum is right and whose contents are not: each is refused in one sentence, before any work.

Some are refused when they are read, the others, which only a model can tell, before they are spoken with.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.files import write_tensors
from qwen3_tts_morph.morph.options import FRAME_RATE
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice import file as voice_file
from qwen3_tts_morph.morph.voice.create import PADDING_S, CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.file import load_voice
from qwen3_tts_morph.morph.voice.recording import LONGEST_S, OVERRUN_S
from qwen3_tts_morph.morph.voice.voice import MOST_CODE_FRAMES, check_voice

from lab.streams import render_lines

WIDTH = 64
EMBEDDING = torch.randn(WIDTH, generator=torch.Generator().manual_seed(0))
CODES = torch.randint(64, (5, 16), generator=torch.Generator().manual_seed(1))
TEXTS: dict[str, Any] = {
    "kind": "icl", "model_size": "0b6", "name": "Anna", "transcript": "words", "speaker": None, "instruct": None,
}  # fmt: skip


@pytest.fixture
def forge(tmp_path: Path) -> Callable[..., Path]:
    """Write an ICL voice's file with changed texts (or other JSON) and tensors, and a correct checksum."""

    def write(words: str | None = None, texts: Any = None, **tensors: torch.Tensor | None) -> Path:
        path = tmp_path / "forged.safetensors"
        held = {"speaker_embedding": EMBEDDING, "ref_codes": CODES, **tensors}
        kept = {key: tensor for key, tensor in held.items() if tensor is not None}
        words = json.dumps({**TEXTS, **(texts or {})}) if words is None else words
        total = voice_file.digest(words, kept)
        metadata = {"format": voice_file.FORMAT, "version": "1", "voice": words, "sha256": total}
        write_tensors(path, kept, metadata)
        return path

    return write


def changed_code(place: tuple[int, int], value: int) -> torch.Tensor:
    codes = CODES.clone()
    codes[place] = value
    return codes


def with_value(value: float) -> torch.Tensor:
    embedding = EMBEDDING.clone()
    embedding[3] = value
    return embedding


TENSORS: dict[str, dict[str, Any]] = {
    "0-d embedding": {"speaker_embedding": torch.tensor(1.0)},
    "empty embedding": {"speaker_embedding": torch.zeros(0)},
    "embedding of two dimensions": {"speaker_embedding": EMBEDDING[None]},
    "embedding of whole numbers": {"speaker_embedding": torch.arange(WIDTH)},
    "embedding of truth values": {"speaker_embedding": torch.ones(WIDTH, dtype=torch.bool)},
    "NaN": {"speaker_embedding": with_value(float("nan"))},
    "infinite": {"speaker_embedding": with_value(float("inf"))},
    "1e30": {"speaker_embedding": with_value(1e30)},
    "no embedding": {"speaker_embedding": None},
    "no codes": {"ref_codes": None},
    "0-d codes": {"ref_codes": torch.tensor(5)},
    "codes of one dimension": {"ref_codes": CODES[0]},
    "codes of three dimensions": {"ref_codes": CODES[None]},
    "8 groups": {"ref_codes": CODES[:, :8].contiguous()},
    "32 groups": {"ref_codes": torch.cat((CODES, CODES), dim=1)},
    "0 frames": {"ref_codes": CODES[:0]},
    "codes of fractions": {"ref_codes": CODES.float()},
    "codes of 32 bits": {"ref_codes": CODES.int()},
}
CHANGED_TEXTS: dict[str, dict[str, Any]] = {
    "a number for a name": {"name": 5},
    "no name": {"name": None},
    "a list for a transcript": {"transcript": ["words"]},
    "a transcript of spaces": {"transcript": " \n"},
    "half a character": {"transcript": "\ud83d"},
    "a name that moves the cursor": {"name": "Anna\x1b[2J"},
    "no model size": {"model_size": None},
    "a list for a kind": {"kind": ["icl"]},
    "a speaker beside codes": {"speaker": "ryan"},
    "an x-vector voice with codes": {"kind": "x_vector"},
    "a preset voice with an embedding": {"kind": "preset", "speaker": "ryan", "transcript": None},
    "another kind": {"kind": "song"},
    "a number for a recipe": {"recipe": 7},
}
WORDS = {
    "deep JSON": "[" * 100_000,
    "a number": "5",
    "null": "null",
    "a list": "[]",
    "lacking keys": '{"kind": "icl"}',
    "a text": '"kind"',
    "cut off": '{"kind": "icl"',
}


def refused(path: Path) -> None:
    with pytest.raises(ValueError, match="again") as caught:
        load_voice(path)
    sentence = str(caught.value)
    assert sentence.startswith("voice file forged.safetensors is damaged (")
    assert "\n" not in sentence and len(sentence) < 250


def test_what_is_not_forged_is_read(forge):
    assert load_voice(forge()).kind == "icl"


@pytest.mark.parametrize("tensors", TENSORS.values(), ids=TENSORS)
def test_invalid_tensors_are_refused(forge, tensors):
    refused(forge(**tensors))


@pytest.mark.parametrize("texts", CHANGED_TEXTS.values(), ids=CHANGED_TEXTS)
def test_invalid_texts_are_refused(forge, texts):
    refused(forge(texts=texts))


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_invalid_metadata_is_refused(forge, words):
    refused(forge(words=words))


TOO_LONG: dict[str, tuple[dict[str, Any], str]] = {
    "8,000 frames": (
        {"ref_codes": torch.zeros(8000, 16, dtype=torch.int64)},
        "reference codes have 8000 frames and 400 are allowed, 32 s",
    ),
    "a name of a megabyte": (
        {"texts": {"name": "x" * 2**20}},
        "a voice's name has 1048576 characters and 1000",
    ),
    "a long recipe": (
        {"texts": {"recipe": "x" * 1001}},
        "a voice's recipe has 1001 characters and 1000 are allowed",
    ),
    "15,000 words": (
        {"texts": {"transcript": "words " * 15_000}},
        "a voice's transcript has 90000 characters and 2000 are allowed",
    ),
    "an instruction of a book": (
        {"texts": {"instruct": "softly " * 10_000}},
        "a voice's instruct has 70000 characters and 4096 are allowed",
    ),
}


@pytest.mark.parametrize(("changes", "sentence"), TOO_LONG.values(), ids=TOO_LONG)
def test_voices_that_would_hold_up_others_are_refused(forge, changes, sentence):
    with pytest.raises(ValueError, match=f"voice file forged.safetensors cannot be used: {sentence}.*again"):
        load_voice(forge(**changes))


def test_the_longest_reference_that_cloning_makes_is_taken():
    assert math.ceil((LONGEST_S + OVERRUN_S + PADDING_S) * FRAME_RATE) <= MOST_CODE_FRAMES


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "another width": (
        {"speaker_embedding": torch.ones(WIDTH + 1)},
        "an embedding of 65 numbers and .* takes 64",
    ),
    "code of 99999": ({"ref_codes": changed_code((2, 3), 99999)}, "codes from 0 to 99999 .* go from 0 to 63"),
    "code of -5": ({"ref_codes": changed_code((2, 3), -5)}, "codes from -5 to .* go from 0 to 63"),
    "group 0, special token": (
        {"ref_codes": changed_code((0, 0), 64)},
        "codes from 0 to 64 .* go from 0 to 63",
    ),
}


@pytest.mark.parametrize(("tensors", "sentence"), UNFIT.values(), ids=UNFIT)
def test_voices_that_do_not_fit_the_model_are_refused_before_they_speak(load, forge, tensors, sentence):
    model = load("tiny", "base")
    assert model.width == WIDTH
    voice = load_voice(forge(**tensors))
    with pytest.raises(ValueError, match=f"'Anna' has .*{sentence}.*: clone the voice again"):
        render_lines(Synthesizer(model), [Line("Hello.", voice)])


def test_a_speaker_in_another_case_is_refused_before_it_speaks(load, forge):
    model = load("tiny", "custom_voice")
    texts = {"kind": "preset", "speaker": "Ryan", "transcript": None}
    voice = load_voice(forge(texts=texts, speaker_embedding=None, ref_codes=None))
    with pytest.raises(ValueError, match=r"names speaker 'Ryan', who is 'ryan' in .*Preset Voice"):
        check_voice(model, voice)


def test_a_model_takes_the_voices_that_it_made_itself(load, recording):
    base = load("tiny", "base")
    check_voice(base, clone_voice(base, recording, 24000))
    check_voice(base, clone_voice(base, recording, 24000, CloneOptions("icl", "a tone")))
    custom = load("tiny", "custom_voice")
    check_voice(custom, preset_voice(custom, "RYAN"))
