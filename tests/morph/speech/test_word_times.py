"""Words of spoken lines and tracks, from the traces of their pieces, with the demo voice's tokenizer."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import read_tokenizer
from qwen3_tts_morph.morph.model.tokens import TextTokenizer
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import retime
from qwen3_tts_morph.morph.speech.lines import Line, LineReport, PieceSpan, Spoken
from qwen3_tts_morph.morph.speech.takes import check_word_times, word_times
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.words.alignment import NO_TOKEN, Trace
from qwen3_tts_morph.morph.words.head import AlignmentHead
from qwen3_tts_morph.postprocess.stretch import Stretch

from lab.streams import render_lines

RATE, FRAME = 24000, 1920
HEAD = AlignmentHead(1, 3)


@pytest.fixture(scope="module")
def model():
    """What word times need of the demo voice."""
    texts = TextTokenizer(read_tokenizer(demo_voice()))
    return SimpleNamespace(texts=texts, alignment=HEAD, name="demo")


def trace(model, text: str, frames: int, unseen: int = 0) -> Trace:
    """Return a trace that is ``frames`` frames on each token, after frames in which none is seen."""
    count = len(model.texts.spans(text))
    tokens = np.array([NO_TOKEN] * unseen + [token for token in range(count) for _ in range(frames)], dtype=np.int32)
    ones = np.ones(len(tokens), dtype=np.float32)
    return Trace(tokens, ones, ones)


def tone(frames: int) -> np.ndarray:
    return (0.3 * np.sin(np.arange(frames * FRAME) / 9)).astype(np.float32)


def spoken(text: str, waveform: np.ndarray, *spans: PieceSpan) -> Spoken:
    return Spoken(waveform, RATE, LineReport("ANN", text, 0, len(waveform) / RATE, "eos", len(spans)), spans)


def shown(words) -> list[tuple[str, float, float]]:
    return [(word.text, round(word.start_s / 0.08, 2), round(word.end_s / 0.08, 2)) for word in words]


def one_word_tokens(model) -> str:
    """Return a text whose words are one token each."""
    text = "He and I"
    assert len(model.texts.spans(text)) == 3
    return text


def test_a_lines_words_have_the_times_of_its_trace(model) -> None:
    text = one_word_tokens(model)
    line = spoken(text, tone(9), PieceSpan(text, 0, 9 * FRAME, trace(model, text, 3)))
    assert shown(word_times(model, line)) == [("He", 0, 3), ("and", 3, 6), ("I", 6, 9)]
    unseen = spoken(text, tone(11), PieceSpan(text, 0, 11 * FRAME, trace(model, text, 3, unseen=2)))
    assert shown(word_times(model, unseen)) == [("He", 0, 5), ("and", 5, 8), ("I", 8, 11)]
    led = SimpleNamespace(**{**vars(model), "alignment": replace(HEAD, lead_s=0.08)})
    assert shown(word_times(led, line)) == [("He", 1, 4), ("and", 4, 7), ("I", 7, 9)]


def test_trimmed_silence_pauses_and_quiet_are_accounted_for(model) -> None:
    text = one_word_tokens(model)
    piece = trace(model, text, 4)
    sound = tone(12)
    sound[: 2 * FRAME] = 0  # two frames of silence, of which one was cut
    silence = np.zeros(5 * FRAME, np.float32)
    first, second = sound[FRAME:], tone(12)
    line = spoken(
        f"{text} [pause 0.4] {text}",
        np.concatenate((first, silence, second)),
        PieceSpan(text, 0, 11 * FRAME, piece, FRAME),
        PieceSpan(text, 16 * FRAME, 28 * FRAME, piece),
    )
    assert shown(word_times(model, line)) == [
        ("He", 0.5, 3),  # 40 ms before the sound
        ("and", 3, 7),
        ("I", 7, 11),
        ("He", 16, 20),
        ("and", 20, 24),
        ("I", 24, 28),
    ]


def test_words_follow_their_line_to_another_speed_and_into_a_track(model) -> None:
    text = one_word_tokens(model)
    line = spoken(text, tone(12), PieceSpan(text, 0, 11 * FRAME, trace(model, text, 4), FRAME))
    faster = replace(
        line, waveform=line.waveform[: 6 * FRAME], speed=2.0, spans=(replace(line.spans[0], end=11 * 960),)
    )
    assert shown(word_times(model, faster)) == [("He", 0, 1.5), ("and", 1.5, 3.5), ("I", 3.5, 5.5)]


def test_a_line_notes_its_speed(model) -> None:
    line = spoken("a", tone(4))
    assert retime(retime(line, Stretch(speed=2.0)), Stretch(speed=0.8)).speed == pytest.approx(1.6)


def test_without_traces_no_words_are_known(model) -> None:
    text = one_word_tokens(model)
    traced = PieceSpan(text, 0, 9 * FRAME, trace(model, text, 3))
    assert word_times(model, spoken(text, tone(9))) == ()
    assert word_times(model, spoken(text, tone(9), traced, PieceSpan("b", 8 * FRAME, 9 * FRAME))) == ()


def test_a_checkpoint_without_a_head_is_refused(model) -> None:
    with pytest.raises(ValueError, match="demo has no attention head that is known to follow the text"):
        check_word_times(SimpleNamespace(**{**vars(model), "alignment": None}))


@pytest.mark.parametrize("split_chars", [0, 40])
def test_lines_that_an_engine_speaks_have_all_their_words(load, monkeypatch, split_chars) -> None:
    tiny = load("tiny", "custom_voice")
    monkeypatch.setattr(tiny, "alignment", HEAD)
    monkeypatch.setattr(tiny, "profile", TextProfile(normalize="en"))
    text = "It costs $5 -- at 10:30. [pause 0.3] Then Dr. Lee went home to have his tea, and slept."
    options = GenerateOptions(sampling=Sampling(max_new_tokens=13), split_chars=split_chars, retries=0)
    [line] = render_lines(Synthesizer(tiny), [Line(text, preset_voice(tiny, "ryan"), seed=2)], options)
    words = word_times(tiny, line)
    assert (
        " ".join(word.text for word in words)
        == "It costs $5 -- at 10:30. Then Dr. Lee went home to have his tea, and slept."
    )
    assert len(line.spans) == 2 if split_chars == 0 else len(line.spans) > 2
    ends = [0.0, *(word.end_s for word in words)]
    assert all(end <= word.start_s for end, word in zip(ends, words, strict=False))
    assert words[-1].end_s <= line.report.seconds
    assert words[5].text == "Then" and words[5].start_s >= words[4].end_s + 0.3
