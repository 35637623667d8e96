"""Lines of which words are read as others: what is spoken and told, whole and in parts, and their keys."""

from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.kept.render import WordCheck
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import captions_of
from qwen3_tts_morph.morph.speech.lines import Line, LineReport, Spoken
from qwen3_tts_morph.morph.speech.report import compose
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.text.pronunciation import parse_pronunciation
from qwen3_tts_morph.morph.text.scripts.captions import read_captions
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.streams import render_lines, stream_line

OPTIONS = GenerateOptions(5, Sampling(max_new_tokens=9), retries=0)
NAMES = parse_pronunciation("Nguyen = win\nSQL = sequel")
TEXT = "Nguyen met <Dr. Who|doctor hoo>. [pause 0.1] It is SQL."
READ = "win met doctor hoo. It is sequel."


@pytest.fixture
def line(model) -> Line:
    return Line(TEXT, preset_voice(model, "ryan"), seed=3, pronunciation=(NAMES,))


def in_parts(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


@pytest.mark.parametrize("late", [False, True], ids=["whole", "late"])
def test_readings_are_spoken_and_words_are_shown(model, line: Line, late: bool) -> None:
    synthesizer = Synthesizer(model, Engine("graph"))
    asked = replace(line, text=iter(in_parts(TEXT))) if late else line
    with stream_line(synthesizer, asked, OPTIONS) as stream:
        list(stream)
        [spoken] = stream.spoken
    report = spoken.report
    assert " ".join(span.text for span in spoken.spans) == READ and report.spoken == READ
    assert report.text == TEXT and captions_of(0, spoken)[0].text == "Nguyen met Dr. Who. It is SQL."
    told = compose([spoken], 1.0, [])
    assert "'Nguyen' read as 'win', 'Dr. Who' read as 'doctor hoo', 'SQL' read as 'sequel', spoken as" in told
    [same] = render_lines(synthesizer, [Line(READ.replace(". I", ". [pause 0.1] I"), line.voice, seed=3)], OPTIONS)
    assert same.report.spoken == "" and same.report.readings == ()
    if not late:
        np.testing.assert_allclose(same.waveform, spoken.waveform, atol=1e-4)


def test_a_voice_has_its_own_list_which_counts_first(model, line: Line) -> None:
    own = replace(line.voice, pronunciation=(parse_pronunciation("SQL = S Q L"),))
    assert replace(line, voice=own).as_read("Nguyen, SQL.") == "win, S Q L."


def test_a_key_changes_where_what_is_spoken_does_and_only_there(model, line: Line) -> None:
    plain = replace(line, text="It is SQL.", pronunciation=())

    def key(text: str = "It is SQL.", *lists: str) -> str | None:
        asked = replace(plain, text=text, pronunciation=tuple(map(parse_pronunciation, lists)))
        return batch.key(asked, OPTIONS)

    with Batch(Synthesizer(model), 1) as batch:
        assert key() == key("It is SQL.", "Nguyen = win") == key("It is <SQL|SQL>.") == key("It is SQL.", "SQL = SQL")
        assert key("It is SQL.", "SQL = sequel") == key("It is <SQL|sequel>.") == key("It is sequel.") != key()


def test_sentences_that_come_within_a_mark_wait_for_its_end(model, line: Line) -> None:
    synthesizer = Synthesizer(model, Engine("graph"))
    for text, wanted in (
        ("He saw <B. A wall. Here|bee>. It is so.", ["He saw bee.", "It is so."]),
        ("It is <5. Then it is. And so", ["It is <5.", "Then it is.", "And so"]),
        ("It ends <so.", ["It ends <so."]),
    ):
        with stream_line(synthesizer, replace(line, text=iter(in_parts(text))), OPTIONS) as stream:
            list(stream)
            assert [span.text for span in stream.spoken[0].spans] == wanted


def test_what_looks_like_a_mark_is_noted(model, line: Line) -> None:
    [spoken] = render_lines(Synthesizer(model), [replace(line, text="It is <SQL|>.")], OPTIONS)
    assert spoken.report.spoken == "It is <sequel|>."
    [note] = spoken.report.notes
    assert note.startswith("'<SQL|>' is no <shown|read> and was spoken as it is")


def test_token_by_token_nothing_is_replaced(load, recording, line: Line) -> None:
    from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice

    base = load("tiny", "base")
    voice = clone_voice(base, recording, 24000, CloneOptions("x_vector"))
    asked = replace(line, text=iter(["It is ", "SQL <a|b>."]), voice=voice, layout="token")
    with stream_line(Synthesizer(base), asked, OPTIONS) as stream:
        list(stream)
        [spoken] = stream.spoken
    assert spoken.spans[0].text == "It is SQL <a|b>." and spoken.report.readings == ()


def test_words_are_heard_as_they_are_written_or_as_they_are_read(line: Line) -> None:
    class Ear:
        name = "ear"

        def transcribe(self, waveform, sample_rate, language):
            return said

    text = "Nguyen is here"
    report = LineReport("", text, 9, 1.0, "eos", 1, spoken="win is here", readings=line.find_readings(text))
    one = Spoken(np.zeros(24000, dtype=np.float32), 24000, report)
    for said, errors in (("Nguyen is here.", 0), ("Win is here.", 0), ("Wind was here", 2)):  # noqa: B007 - Ear reads it
        [heard] = WordCheck(Ear(), 0.5, 0).apply([replace(line, text=text)], [one], list, lambda _: None)
        assert heard.report.heard.errors == errors


@pytest.mark.parametrize("head", ["", "WEBVTT\n\n"], ids=["srt", "vtt"])
def test_a_mark_in_a_caption_is_no_tag(head: str) -> None:
    pytest.importorskip("pysubs2")
    file = f"{head}1\n00:00:01.000 --> 00:00:02.000\n<i>Ask</i> <Nguyen|win>: <12|a dozen>!\n"
    assert read_captions(file)[0].text == "Ask <Nguyen|win>: <12|a dozen>!"
