"""Words while a line is spoken: in order, each once, soon after it has ended."""

import random
import re

import numpy as np
import pytest
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.takes import word_times
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.words.alignment import NO_TOKEN, Trace
from qwen3_tts_morph.morph.words.head import AlignmentHead
from qwen3_tts_morph.morph.words.timing import BEHIND_FRAMES, LiveWords, WordTime

from lab.streams import stream_lines

FRAME = 0.08


def spans(text: str) -> list[tuple[int, int]]:
    """A token for each word, with its punctuation."""
    return [match.span() for match in re.finditer(r"\s?\S+", text)]


def trace(tokens) -> Trace:
    ones = np.ones(len(tokens), np.float32)
    return Trace(np.array(tokens, np.int32), ones, ones)


def shown(words: list[WordTime]) -> list[tuple[str, float, float]]:
    return [(word.text, round(word.start_s / FRAME, 2), round(word.end_s / FRAME, 2)) for word in words]


def test_a_word_comes_a_few_frames_after_it_has_ended() -> None:
    live = LiveWords("It costs $5 now", spans)
    said = "It costs five dollars now"
    assert live.add(0, said, 0.0, trace([NO_TOKEN, 0, 0, 0, 1, 1, 1])) == []
    assert shown(live.add(0, said, 0.0, trace([1]))) == [("It", 0, 4)]
    assert shown(live.add(0, said, 0.0, trace([2, 2, 3, 3, 3]))) == [("costs", 4, 8)]
    assert live.add(0, said, 0.0, trace([4] * (BEHIND_FRAMES - 1))) == []
    assert shown(live.add(0, said, 0.0, trace([4]))) == [("$5", 8, 13)]
    assert shown(live.end(16.5 * FRAME)) == [("now", 13, 16.5)]


def test_a_text_is_cut_into_tokens_once_not_with_each_chunk() -> None:
    asked: list[str] = []
    live = LiveWords("One two. Three.", lambda text: asked.append(text) or spans(text))
    for frames in ([0, 0], [0, 1], [1, 1], [1, 1, 1]):
        live.add(0, "One two.", 0.0, trace(frames))
    live.add(1, "Three.", 1.0, trace([0, 0]))
    live.end(2.0)
    assert asked == ["One two.", "Three."]


def test_pieces_follow_one_another_and_what_is_not_spoken_has_no_length() -> None:
    live = LiveWords("One two [pause 1] Three", spans)
    live.text += " four five"
    words = live.add(0, "One two", -FRAME, trace([0, 0, 0, 1, 1]))
    words += live.add(1, "Three", 20 * FRAME, trace([0] * 5))
    assert shown(words) == [("One", 0, 2), ("two", 2, 4)]
    words += live.end(3.0)
    assert shown(words[2:]) == [("Three", 20, 25), ("four", 25, 25), ("five", 25, 25)]
    text = "One two [pause 1] Three four five"
    assert [text[word.first_char : word.last_char] for word in words] == [word.text for word in words]


def test_figures_at_the_end_of_a_piece_stay_with_their_word() -> None:
    live = LiveWords("At 10:30. Then Dr. Lee went home to his tea.", spans)
    words = live.add(0, "At ten thirty.", 0.0, trace([0, 0, 1, 1, 2, 2]))
    words += live.add(1, "Then Doctor Lee went home to his tea.", 1.0, trace([0, 0, 1, 1, 2, 2, 2, 2, 2, 2]))
    assert shown(words)[:4] == [("At", 0, 2), ("10:30.", 2, 5.71), ("Then", 12.5, 14.5), ("Dr.", 14.5, 16.5)]


def test_the_word_behind_a_number_that_is_spoken_in_two_pieces_has_its_own_time() -> None:
    live = LiveWords("She paid 1,250 euros for it. 12 more.", spans)
    words = live.add(0, "She paid one thousand", 0.0, trace([0, 0, 1, 1, 2, 2, 3, 3]))
    words += live.add(1, "two hundred fifty euros for it.", 1.0, trace([0, 1, 1, 2, 3, 3, 4, 4, 5]))
    words += live.add(2, "Twelve more.", 2.0, trace([0, 0, 1, 1]))
    assert shown([*words, *live.end(9)]) == [
        *(("She", 0, 2), ("paid", 2, 4), ("1,250", 4, 8), ("euros", 16.5, 18.5)),
        *(("for", 18.5, 20.5), ("it.", 20.5, 21.17), ("12", 25, 27), ("more.", 27, 28.6)),
    ]


def test_text_that_comes_word_by_word() -> None:
    live, said, words = LiveWords("", spans), "", []
    for word in ["Some", " words", " come", " late"]:
        live.text += word
        said += word
        words += live.add(0, said, 0.0, trace([len(spans(said)) - 1] * 3))
    assert shown([*words, *live.end(2.0)]) == [
        ("Some", 0, 3),
        ("words", 3, 6),
        ("come", 6, 9),
        ("late", 9, 12),
    ]


def test_whatever_is_looked_at_each_word_comes_once_and_in_order() -> None:
    chance = random.Random(7)
    written, said = (
        "Dr. Lee paid $5 at 10:30 -- 你好 & so",
        ["Doctor Lee paid", "five dollars at ten thirty --", "你好 and so"],
    )
    for _ in range(200):
        live, words, begin = LiveWords(written, spans), [], -0.2
        for number in range(chance.randrange(4)):
            count = len(spans(said[number]))
            for _ in range(chance.randrange(1, 8)):
                seen = [chance.randrange(-1, count) for _ in range(chance.randrange(1, 12))]
                words += live.add(number, said[number], begin, trace(seen))
            begin += chance.uniform(0, 4)
        words += live.end(20.0)
        assert " ".join(word.text for word in words) == written.replace("你好", "你 好")
        times = [time for word in words for time in (word.start_s, word.end_s)]
        assert times == sorted(times) and times[0] >= 0


@pytest.mark.parametrize("trim_ends", [False, True])
def test_the_words_of_a_stream_are_those_of_its_line(load, monkeypatch, trim_ends) -> None:
    model = load("tiny", "custom_voice")
    monkeypatch.setattr(model, "alignment", AlignmentHead(1, 3))
    text = "One, two; three. [pause 0.3] Four five six seven eight nine and ten, eleven."
    options = GenerateOptions(sampling=Sampling(max_new_tokens=20), split_chars=40, retries=0, trim_ends=trim_ends)
    live, words = LiveWords(text, model.texts.spans), []
    with stream_lines(Synthesizer(model), [Line(text, preset_voice(model, "ryan"), seed=2)], options) as stream:
        for chunk in stream:
            if (told := chunk.words) is not None:
                words += live.add(told.piece, told.text, told.begin / stream.sample_rate, told.trace)
        [line] = stream.spoken
    words += live.end(line.report.seconds)
    monkeypatch.setattr("qwen3_tts_morph.postprocess.ends.quiet_spans", lambda *_: [])
    final = word_times(model, line)
    assert [word.text for word in words] == [word.text for word in final]
    apart = [abs(one.start_s - other.start_s) for one, other in zip(words, final, strict=True)]
    assert np.mean(apart) < 0.1
