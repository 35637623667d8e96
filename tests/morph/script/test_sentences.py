"""Captions of one sentence each: exact where pieces are, else at the pauses that are heard."""

from dataclasses import replace

import numpy as np
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.kept.render import speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import ScriptRequest, assemble, captions_of, read_script
from qwen3_tts_morph.morph.speech.lines import LineReport, PieceSpan, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

RATE = 24000


def sound(*seconds: float) -> np.ndarray:
    """Tone and silence in turn, beginning with a tone."""
    parts = [np.full(round(one * RATE), 0.3 * (place % 2 == 0)) for place, one in enumerate(seconds)]
    wave = np.concatenate(parts)
    return (wave * np.sin(2 * np.pi * 200 * np.arange(len(wave)) / RATE)).astype(np.float32)


def spoken(wave: np.ndarray, text: str, *pieces: tuple[str, int, int], said: str = "") -> Spoken:
    report = LineReport("Anna", text, 10, len(wave) / RATE, "eos", len(pieces), spoken=said)
    return Spoken(wave, RATE, report, tuple(PieceSpan(*piece) for piece in pieces))


def cues(line: Spoken, start: int = 0) -> list[tuple[int, int, str]]:
    return [(one.start_ms, one.end_ms, one.text) for one in captions_of(start, line, sentences=True)]


def test_pieces_have_their_own_times() -> None:
    wave = sound(1, 0.5, 2)
    line = spoken(wave, "One. Two.", ("One.", 0, RATE), ("Two.", round(1.5 * RATE), len(wave)))
    assert cues(line, start=RATE) == [(1000, 2000, "One."), (2500, 4500, "Two.")]


def test_a_piece_is_cut_at_the_pause_near_the_end_of_its_sentence() -> None:
    wave = sound(1, 0.3, 1, 0.2, 1)
    text = "Two words here. Another is here. And one more."
    assert cues(spoken(wave, text, (text, 0, len(wave)))) == [
        (0, 1040, "Two words here."),
        (1260, 2340, "Another is here."),
        (2460, 3500, "And one more."),
    ]


def test_sentences_without_a_pause_share_a_caption() -> None:
    wave = sound(2)
    assert cues(spoken(wave, "One. Two.", ("One. Two.", 0, len(wave)))) == [(0, 2000, "One. Two.")]


def test_a_pause_far_from_the_end_of_a_sentence_is_inside_it() -> None:
    wave = sound(0.3, 0.2, 3.5)
    text = "This, however, is quite long. So is this one here."
    assert [one[2] for one in cues(spoken(wave, text, (text, 0, len(wave))))] == [text]


def test_words_are_as_they_were_written_where_the_sentences_agree() -> None:
    wave = sound(1, 0.3, 1)
    said = "It is five thirty now. Go now, please."
    line = spoken(wave, "It is 5:30 now. Go now, please.", (said, 0, len(wave)), said=said)
    assert [one[2] for one in cues(line)] == ["It is 5:30 now.", "Go now, please."]
    other = spoken(wave, "It is 5:30 now! Go. Now!", (said, 0, len(wave)), said=said)
    assert [one[2] for one in cues(other)] == ["It is five thirty now.", "Go now, please."]


def test_a_sentence_that_is_spoken_in_two_pieces_has_one_caption() -> None:
    wave = sound(1, 0.3, 1, 0.3, 1)
    pieces = (
        ("First, a long one.", 0, 31200),
        ("and on it goes.", 31200, 62400),
        ("Then more.", 62400, len(wave)),
    )
    line = spoken(wave, "First, a long one, [pause 0.1] and on it goes. Then more.", *pieces)
    assert cues(line) == [(0, 2340, "First, a long one, and on it goes."), (2600, 3600, "Then more.")]


def test_a_line_whose_pieces_are_not_known_has_one_caption() -> None:
    line = replace(spoken(sound(1, 0.3, 1), "One. Two."), spans=())
    assert cues(line) == [(0, 2300, "One. Two.")]


def test_a_script_has_a_caption_for_each_sentence_on_request(load) -> None:
    model = load("tiny", "custom_voice")
    cast = {"Anna": preset_voice(model, "vivian")}
    text = "ANNA: This is the first of two sentences. [pause 0.5] This is the second one.\nANNA: [speed 2] Yes."
    options = GenerateOptions(sampling=Sampling(max_new_tokens=7), retries=0)
    with Batch(Synthesizer(model)) as batch:
        parsed, lines = read_script(batch, ScriptRequest(text, cast), options)
        spoken = speak_lines(batch, lines, options)
    plain, cut = (assemble(parsed, spoken, 0.3, sentences) for sentences in (False, True))
    assert np.array_equal(plain.joined, cut.joined)
    assert plain.srt.count("-->") == 2 and cut.srt.count("-->") == 3
    assert "Anna: This is the second one.\n" in cut.srt
    first, second = cut.lines[0].spans
    assert second.start - first.end == round(0.5 * RATE)
