"""The laboratory's measurements of word times and of the guard, on a tiny checkpoint that does not follow its text."""

import argparse
import dataclasses

import numpy as np
import pytest
from qwen3_tts_morph.morph.checkpoint.letter_file import LETTER_FILE
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.morph.words.letters import LETTERS
from qwen3_tts_morph.morph.words.trace import Trace

from lab.random_checkpoint import write_checkpoint
from lab.words.__main__ import WordStudy, parse
from lab.words.letters import Example, fit, speak_examples, write_table
from lab.words.lines import GOOD, PARTS, WRONG, good_lines, read_part, wrong_lines
from lab.words.record import Head, PlannedLine, TracedLine, record
from lab.words.times import Errors, summarise_times, time_errors
from lab.words.transcribed import TranscribedWord

RATE, FRAMES = 24000, 9
HEAD = Head(1, 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", "base")
    model = load_model(folder, LoadOptions(precision="fp32"))
    model.sampling = dataclasses.replace(model.sampling, max_new_tokens=FRAMES + 1)
    return model


@pytest.fixture(scope="module")
def voices(model: Model) -> dict[str, Voice]:
    noise = np.random.default_rng(0).normal(0, 0.1, 2 * RATE).astype(np.float32)
    icl = CloneOptions("icl", "A tone.", name="other")
    return {
        "x_vector": clone_voice(model, noise, RATE, CloneOptions(name="one")),
        "icl": clone_voice(model, noise, RATE, icl),
    }


class WhisperTranscriber:
    """Transcribes the words of what ``said`` gives it, a tenth of a second each."""

    def __init__(self, *lines: str):
        self.lines, self.heard = list(lines), 0

    def transcribe(self, waveform: np.ndarray, sample_rate: int) -> list[TranscribedWord]:
        self.heard += 1
        words = self.lines.pop(0).split()
        return [TranscribedWord(word, index / 10, (index + 1) / 10) for index, word in enumerate(words)]


def ask(voice: Voice, text: str = "Not a single minute, she said.") -> PlannedLine:
    return PlannedLine(text, voice, 3, GenerateOptions(seq_groups=1))


def spoken(tokens: list[int], text: str = "One two.", count: int = 3) -> TracedLine:
    rows = np.full((len(tokens), count), 0.01, dtype=np.float32)
    rows[np.arange(len(tokens)), tokens] = 0.9
    codes = np.zeros((len(tokens), 16), dtype=np.int64)
    return TracedLine(text, "preset a", 15, codes, rows, np.ones(len(tokens) * 1920, dtype=np.float32), "eos")


class Words:
    """A tokenizer with a token for each word and each full stop."""

    def encode(self, text: str, add_special_tokens: bool) -> argparse.Namespace:
        ends = [index for index, letter in enumerate(text) if letter in " ."] + [len(text)]
        starts = [0, *ends[:-1]]
        return argparse.Namespace(offsets=[one for one in zip(starts, ends, strict=True) if one[0] < one[1]])


def test_a_line_is_spoken_once_and_kept_with_what_its_head_sees(model, voices, tmp_path) -> None:
    [[path]] = record(model, [[ask(voices["x_vector"])]], HEAD, tmp_path)
    first = TracedLine.read(path)
    made = path.stat().st_mtime_ns
    assert record(model, [[ask(voices["x_vector"])]], HEAD, tmp_path) == [[path]]
    assert path.stat().st_mtime_ns == made
    tokens = len(model.texts.plain(first.text))
    assert first.rows.shape == (len(first.codes), tokens) and first.voice == "x_vector one"
    assert len(first.waveform) == len(first.codes) * RATE * 0.08
    assert (first.rows.sum(1) <= 1.01).all() and model.attention != "eager"


def test_times_are_compared_where_all_words_were_heard() -> None:
    line = spoken([0, 0, 0, 1, 1, 2])
    errors = time_errors(
        [line, line], WhisperTranscriber("one two one two").transcribe(line.waveform, RATE), Words()
    )
    assert errors is not None and errors.without_time == 0
    assert np.allclose(errors.starts, [0.1 - 0.24, 0.2 - 0.48, 0.3 - 0.72])
    assert np.allclose(errors.ends, [0.2 - 0.4, 0.4 - 0.88])
    assert time_errors([line], WhisperTranscriber("one too").transcribe(line.waveform, RATE), Words()) is None
    figures = summarise_times([Errors(np.array([0.1, -0.3, 0.1]), np.array([0.05]), 1), None])
    assert (figures["spoken"], figures["compared"], figures["words"], figures["without_time"]) == (2, 1, 3, 1)
    assert (figures["lead_ms"], figures["median_ms"], figures["near_percent"]) == (100, 100, 66.67)
    assert (figures["ends"], figures["end_late_ms"], figures["end_p95_ms"]) == (1, 50, 50)
    with pytest.raises(ValueError, match="no line was heard"):
        summarise_times([None])


def test_development_and_held_out_lines_have_nothing_in_common(model, voices) -> None:
    texts = {part: set(read_part(part)) for part in PARTS}
    assert not set.intersection(*texts.values())
    own = list(voices.values())
    for name in GOOD:
        lines = good_lines("held_out", name, 5, 3, own)
        assert len(lines) == 3 and len({one.seed for line in lines for one in line}) == sum(map(len, lines))
    assert all(len(wrong_lines(model, "held_out", name, 2, own)) == 2 for name in WRONG)


def test_the_command_measures_times_and_the_guard(model, voices, tmp_path) -> None:
    asked = parse(
        ["guard", str(tmp_path), "--lines", "sentences", "stock1", "--count", "1", "--seq-groups", "1"]
    )
    sentence = good_lines("held_out", "sentences", 1, 1, [voices["x_vector"]])[0][0].text
    transcriber = WhisperTranscriber(sentence, sentence)
    bench = WordStudy(model, transcriber, [voices["x_vector"]], tmp_path, asked)
    rows = [row.flat() for row in bench.faults()]
    assert [row["lines"] for row in rows] == [
        "held_out sentences", "held_out stock1",
    ]  # fmt: skip
    assert rows[0]["right"] == 1 and rows[1]["seq_groups"] == 1
    assert all(row["table"] == "word_faults" and row["spoken"] == 1 for row in rows)


def test_a_table_of_letters_is_made_of_spoken_lines_and_found_in_the_checkpoint(
    model, voices, tmp_path
) -> None:
    examples = list(speak_examples(model, list(voices.values()), HEAD, tmp_path / "lines", 2))
    codes = model.codec.config.decoder_config.codebook_size
    frames = np.repeat(np.arange(8), 2)
    letters = np.arange(8) % LETTERS
    nothing = np.zeros(len(frames), dtype=np.float32)
    trace = Trace(frames.astype(np.int32), nothing, nothing)
    table = fit([*examples, Example(frames, letters, np.arange(8), trace, frames)], codes)
    folder = write_checkpoint(tmp_path / "tiny", "tiny", "base")
    write_table(folder / LETTER_FILE, table)
    assert np.allclose(load_model(folder).letters.steps, table.steps)
    (folder / LETTER_FILE).write_bytes(b"no table")
    with pytest.raises(ValueError, match=r"letters\.safetensors of tiny is damaged .*delete it"):
        load_model(folder)
