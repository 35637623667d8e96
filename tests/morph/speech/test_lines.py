"""Lines to waveforms: order, pieces, seeds, progress, reports, and errors before decoding starts."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.decode.rows import Decoded
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech import pieces as render
from qwen3_tts_morph.morph.speech.lines import Line, next_seed
from qwen3_tts_morph.morph.speech.pieces import LinePieces, Piece
from qwen3_tts_morph.morph.speech.takes import Take
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.duration import longest_frames, minimum_frames
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.voice.create import clone_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.postprocess.ends import trim_ends

from lab.streams import render_lines

SHORT = Sampling(max_new_tokens=13)  # at most 12 frames
FRAME = 1920


@pytest.fixture
def synthesizer(model):
    return Synthesizer(model)


def test_a_long_text_is_spoken_in_pieces_that_are_joined(synthesizer, voice) -> None:
    sentences = [
        "This is the first sentence of them.",
        "And this is the second sentence.",
        "The third comes last.",
    ]
    options = GenerateOptions(sampling=SHORT, split_chars=40)
    whole = render_lines(synthesizer, [Line(" ".join(sentences), voice, seed=5)], options)[0]
    pieces = [
        render_lines(synthesizer, [Line(text, voice, seed=5 + number)], options)[0]
        for number, text in enumerate(sentences)
    ]
    assert whole.report.pieces == 3
    assert whole.report.frames == sum(piece.report.frames for piece in pieces)
    overlaps = 2 * round(0.060 * 24000)
    assert len(whole.waveform) == sum(len(piece.waveform) for piece in pieces) - overlaps
    body = len(pieces[0].waveform) - round(0.060 * 24000)
    assert np.allclose(whole.waveform[:body], pieces[0].waveform[:body], atol=1e-5)


def test_spans_cover_the_waveform_in_order(synthesizer, voice) -> None:
    options = GenerateOptions(sampling=SHORT, split_chars=40, retries=0)
    spoken = render_lines(synthesizer, [Line(THREE, voice)], options)[0]
    assert [span.text for span in spoken.spans] == [
        "This is the first sentence of them.",
        "And this is the second sentence.",
        "The third comes last.",
    ]
    assert spoken.spans[0].start == 0 and spoken.spans[-1].end == len(spoken.waveform)
    for span, following in zip(spoken.spans[:-1], spoken.spans[1:], strict=True):
        assert span.end - following.start == round(0.060 * 24000)
    assert sum(span.end - span.start for span in spoken.spans) == spoken.report.frames * FRAME


def test_pauses_are_silence_between_pieces_and_change_nothing_else(synthesizer, voice) -> None:
    options = GenerateOptions(sampling=SHORT)
    text = "[pause 0.1] One is here. [pause 0.25] Two, [pause 0.05][pause 0.2], and three. [pause 0.5]"
    paused, *alone = render_lines(
        synthesizer,
        [
            Line(text, voice, seed=5),
            Line("One is here.", voice, seed=5),
            Line("Two,", voice, seed=6),
            Line(", and three.", voice, seed=7),
        ],
        replace(options, batch_size=1),
    )
    silences = [np.zeros(round(seconds * 24000), np.float32) for seconds in (0.1, 0.25, 0.25, 0.5)]
    waves = [part for pair in zip(silences, [one.waveform for one in alone], strict=False) for part in pair]
    assert paused.waveform.tobytes() == (np.concatenate([*waves, silences[3]]) + np.float32(0)).tobytes()
    assert [span.text for span in paused.spans] == ["One is here.", "Two,", ", and three."]
    for span, one in zip(paused.spans, alone, strict=True):
        assert np.array_equal(paused.waveform[span.start : span.end], one.waveform)
    assert paused.report.text == text and paused.report.spoken == "" and paused.report.pieces == 3
    assert paused.report.seconds == len(paused.waveform) / 24000


def test_the_ends_of_a_line_are_trimmed_and_its_pauses_stay(synthesizer, voice) -> None:
    text = "[pause 0.5] One is here. [pause 0.25] Two. [pause 0.5]"
    options = GenerateOptions(sampling=SHORT, batch_size=1)
    [plain] = render_lines(synthesizer, [Line(text, voice, seed=5)], options)
    quiet = 12000  # samples of each pause at an end
    speech = plain.waveform[quiet:-quiet]
    cut, start = trim_ends(speech, 24000)
    [trimmed] = render_lines(synthesizer, [Line(text, voice, seed=5)], replace(options, trim_ends=True))
    assert len(trimmed.waveform) == 2 * quiet + len(cut) <= len(plain.waveform)
    assert np.array_equal(trimmed.waveform[quiet:-quiet], cut)
    assert not trimmed.waveform[:quiet].any() and not trimmed.waveform[-quiet:].any()
    for before, after in zip(plain.spans, trimmed.spans, strict=True):
        heard = plain.waveform[max(before.start, quiet + start) : min(before.end, quiet + start + len(cut))]
        assert np.array_equal(trimmed.waveform[after.start : after.end], heard)
    assert trimmed.report.seconds == len(trimmed.waveform) / 24000


def test_a_line_that_hits_its_cap_is_reported_and_warned_of(synthesizer, voice, caplog) -> None:
    sampling = Sampling(max_seconds=0.4)
    with caplog.at_level(logging.WARNING):
        spoken = render_lines(
            synthesizer,
            [Line("Hi.", voice, seed=seed) for seed in range(3)],
            GenerateOptions(sampling=sampling),
        )
    capped = [one for one in spoken if one.report.ended == "cap"]
    assert capped and all(one.report.frames == 5 for one in capped)
    assert caplog.text.count("ran into its limit") == len(capped)


def test_the_guard_caps_by_the_text_and_can_be_turned_off(synthesizer, voice) -> None:
    def speak(seed: int, guard: bool):
        options = GenerateOptions(1, Sampling(max_new_tokens=301), guard=guard, batch_size=1, retries=0)
        return render_lines(synthesizer, [Line("Hi", voice, seed=seed)], options)[0].report

    cap = longest_frames(2)  # the tiny tokenizer makes two tokens of it
    free = ((seed, speak(seed, guard=False)) for seed in range(100))
    seed, long = next((seed, report) for seed, report in free if report.frames > cap)
    guarded = speak(seed, guard=True)
    assert guarded.ended == "cap" and guarded.frames == cap < long.frames


BASE_TEXT = "Hello."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"text": ""}, "text is empty"),
        ({"text": " \n\t"}, "text is empty"),
        ({"text": "..."}, "no letter and no digit"),
        ({"text": "Hi \ud83d"}, "half a character"),
        ({"text": "One [pause x] two."}, r"\[pause x\] is not a pause"),
        ({"language": "klingon"}, "language 'klingon' is unknown.*auto, chinese"),
        ({"language": "sichuan_dialect"}, "is unknown"),
        ({"instruct": "whispering"}, "does not follow instructions"),
        ({"text": "word " * 9000}, "positions and .* has"),
    ],
)
def test_bad_lines_are_refused_before_any_frame(synthesizer, voice, change: dict, sentence: str) -> None:
    good = Line(BASE_TEXT, voice)
    bad = Line(**{"text": BASE_TEXT, "voice": voice, **change})
    frames: list[int] = []
    options = GenerateOptions(sampling=SHORT, split_chars=0)
    with pytest.raises(ValueError, match=sentence):
        render_lines(synthesizer, [good, bad], options, lambda done, _: frames.append(done))
    assert not any(frames)


def test_voices_of_another_kind_or_size_are_refused(load, model, voice, recording) -> None:
    base = load("tiny", "base")
    cloned = clone_voice(base, recording, 24000)
    nobody = Voice("preset", "0b6", "nobody", speaker="nobody")
    frames: list[int] = []
    for speaking, good, bad, sentence in [
        (model, voice, cloned, "needs a Base checkpoint"),
        (model, voice, nobody, "speaker 'nobody' is unknown"),
        (load("tiny-1.7B", "base"), None, cloned, r"made for a 0\.6B model and .* is 1\.7B"),
        (base, cloned, voice, "has no preset speakers"),
    ]:
        lines = [Line(BASE_TEXT, one) for one in (good, bad) if one is not None]
        with pytest.raises(ValueError, match=sentence):
            render_lines(Synthesizer(speaking), lines, on_frame=lambda done, _: frames.append(done))
    assert frames == []


THREE = "This is the first sentence of them. And this is the second sentence. The third comes last."


class Endings:
    """Makes takes end as listed by their seeds, the others by themselves; ``seeds`` are those of all takes."""

    def __init__(self, monkeypatch, **told: str):
        ends, judge = {int(seed[1:]): end for seed, end in told.items()}, LinePieces.judge
        self.seeds: list[int] = []

        def judge_as_told(parts: LinePieces, piece: Piece, decoded: Decoded, wave: np.ndarray, number: int = 1) -> Take:
            self.seeds.append(next_seed(piece.seed, piece.stride, number - 1))
            told = replace(decoded, ended=ends.get(self.seeds[-1], "eos"))
            return judge(parts, piece, told, wave, number)

        monkeypatch.setattr(LinePieces, "judge", judge_as_told)


@pytest.fixture
def free_judge(monkeypatch):
    """A random model's speech has any length, so a take is judged only by how decoding ended; none is long."""
    monkeypatch.setattr(pieces, "longest_frames", lambda _: 8)
    monkeypatch.setattr(pieces, "judge_end", lambda text, decoded, *_: decoded.ended)


LONG_ENOUGH = Sampling(max_new_tokens=1000)
SPLIT = GenerateOptions(sampling=LONG_ENOUGH, split_chars=40, batch_size=1)


def test_a_line_that_stays_wrong_is_reported_and_keeps_its_best_take(
    synthesizer, voice, caplog, monkeypatch, free_judge
) -> None:
    engine = Endings(monkeypatch, s8="loop", s11="early", s14="cap")
    spoken = render_lines(synthesizer, [Line(THREE, voice, seed=7)], replace(SPLIT, retries=2))[0]
    assert sorted(engine.seeds) == [7, 8, 9, 11, 14]
    assert (spoken.report.ended, spoken.report.takes) == ("cap", 3), "of a loop, an early end and a cap"
    assert caplog.text.count("ran into its limit") == 1 and "the line 'This is the first" in caplog.text


def test_a_line_that_reached_the_users_own_limit_is_not_spoken_again(
    synthesizer, voice, monkeypatch, free_judge
) -> None:
    engine = Endings(monkeypatch, s7="cap")
    options = replace(SPLIT, sampling=Sampling(max_seconds=0.4))
    assert render_lines(synthesizer, [Line("Hello.", voice, seed=7)], options)[0].report.ended == "cap"
    assert len(engine.seeds) == 1


def test_the_checkpoint_limits_the_length_of_a_piece(synthesizer, model, voice, monkeypatch) -> None:
    monkeypatch.setattr(model, "profile", TextProfile(longest_piece=40))
    options = GenerateOptions(sampling=SHORT, retries=0)
    assert render_lines(synthesizer, [Line(THREE, voice)], options)[0].report.pieces == 3
    assert render_lines(synthesizer, [Line(THREE, voice)], replace(options, split_chars=0))[0].report.pieces == 1


def test_a_piece_is_no_longer_than_the_limit_with_the_stop_that_is_added(model, monkeypatch) -> None:
    monkeypatch.setattr(model, "profile", TextProfile(longest_piece=40, normalize="en"))
    line, options = Line("a" * 100, Voice("preset", "", speaker="ryan")), GenerateOptions()
    parts = LinePieces(line, options, PromptBuilder(model))
    texts = [piece.text for piece in parts.split(line.text, parts.normalizer)]
    assert max(map(len, texts)) == 40 and all(text.endswith(".") for text in texts)
    assert render.piece_limit(model, replace(options, normalize="off")) == 40
    assert render.piece_limit(model, replace(options, split_chars=0)) == 0


def test_parts_without_a_letter_are_left_out(synthesizer, voice) -> None:
    options = GenerateOptions(sampling=SHORT, split_chars=40, retries=0)
    text = "The first part of this text ends here.\n* * *\n" + "-" * 40 + "\nThe second one comes after it all."
    assert render_lines(synthesizer, [Line(text, voice)], options)[0].report.pieces == 2


def test_figures_are_written_out_if_the_checkpoint_needs_it(synthesizer, model, voice, monkeypatch) -> None:
    line, options = Line("It costs $45.", voice), GenerateOptions(sampling=SHORT, retries=0)
    assert render_lines(synthesizer, [line], options)[0].report.spoken == ""
    monkeypatch.setattr(model, "profile", TextProfile(normalize="en"))
    report = render_lines(synthesizer, [line], options)[0].report
    assert (report.text, report.spoken) == ("It costs $45.", "It costs forty five dollars.")
    assert render_lines(synthesizer, [line], replace(options, normalize="off"))[0].report.spoken == ""


def test_a_line_cannot_end_early_if_the_checkpoint_needs_it(synthesizer, model, voice, monkeypatch) -> None:
    options = GenerateOptions(sampling=Sampling(max_new_tokens=100), retries=0)
    lines = [Line("Yes, that is so.", voice, seed=seed) for seed in range(8)]
    free = [one.report.frames for one in render_lines(synthesizer, lines, options)]
    monkeypatch.setattr(model, "profile", TextProfile(hold_end=True))
    held = [one.report.frames for one in render_lines(synthesizer, lines, options)]
    assert min(free) < minimum_frames(lines[0].text, after_reference=False) <= min(held)


def test_the_checkpoints_own_sampling_is_the_default(synthesizer, model, voice, monkeypatch) -> None:
    monkeypatch.setattr(model, "sampling", Sampling(max_seconds=0.16))
    assert render_lines(synthesizer, [Line(BASE_TEXT, voice)])[0].report.frames == 2
