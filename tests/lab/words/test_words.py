"""The laboratory's measurements of word times and of the guard, on a tiny checkpoint that does not follow its text."""

import dataclasses

import numpy as np
import pytest
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.trained_files import LETTER_FILE
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.morph.words.alignment import Trace
from qwen3_tts_morph.morph.words.guard import LETTERS

from lab.random_checkpoint import write_checkpoint
from lab.words.__main__ import WordStudy, parse
from lab.words.letters import Example, fit, speak_examples, write_table
from lab.words.lines import GOOD, PARTS, WRONG, good_lines, read_part, wrong_lines
from lab.words.record import Head, PlannedLine, TracedLine, record
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


def test_development_and_held_out_lines_have_nothing_in_common(model, voices) -> None:
    texts = {part: set(read_part(part)) for part in PARTS}
    assert not set.intersection(*texts.values())
    own = list(voices.values())
    for name in GOOD:
        lines = good_lines("held_out", name, 5, 3, own)
        assert len(lines) == 3 and len({one.seed for line in lines for one in line}) == sum(map(len, lines))
    assert all(len(wrong_lines(model, "held_out", name, 2, own)) == 2 for name in WRONG)


def test_the_command_measures_times_and_the_guard(model, voices, tmp_path) -> None:
    asked = parse(["guard", str(tmp_path), "--lines", "sentences", "stock1", "--count", "1", "--seq-groups", "1"])
    sentence = good_lines("held_out", "sentences", 1, 1, [voices["x_vector"]])[0][0].text
    transcriber = WhisperTranscriber(sentence, sentence)
    bench = WordStudy(model, transcriber, [voices["x_vector"]], tmp_path, asked)
    rows = [row.flat() for row in bench.faults()]
    assert [row["lines"] for row in rows] == [
        "held_out sentences", "held_out stock1",
    ]  # fmt: skip
    assert rows[0]["right"] == 1 and rows[1]["seq_groups"] == 1
    assert all(row["table"] == "word_faults" and row["spoken"] == 1 for row in rows)


def test_a_table_of_letters_is_made_of_spoken_lines_and_found_in_the_checkpoint(model, voices, tmp_path) -> None:
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
