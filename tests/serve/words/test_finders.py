"""The words of lines are found in other processes, and here if one of those is gone."""

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import wait

import pytest
from qwen3_tts_morph.serve.words import finders as finders_module
from qwen3_tts_morph.serve.words.__main__ import answer
from qwen3_tts_morph.serve.words.finders import WordFinders

from tests.morph.words.test_traced import line
from tests.patience import PATIENCE

Started = list["subprocess.Popen[bytes]"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    processes: Started = []
    start = subprocess.Popen

    def note(*words, **more):
        processes.append(start(*words, **more))
        return processes[-1]

    monkeypatch.setattr(finders_module.subprocess, "Popen", note)
    return processes


@pytest.fixture
def finders(monkeypatch: pytest.MonkeyPatch, started: Started) -> Iterator[WordFinders]:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    found = WordFinders()
    yield found
    found.close()
    assert all(process.poll() is not None for process in started)


def test_words_are_those_that_are_found_here(finders: WordFinders, started: Started) -> None:
    done, late = wait(finders.start(), PATIENCE)
    assert len(done) == len(started) == 2 and not late and all(one.exception() is None for one in done)
    for _ in range(3):
        assert finders.find(line(1.25)) == line(1.25).words()
    assert len(started) == 2, "they are there before the first line"


def test_what_is_wrong_with_a_line_is_said(finders: WordFinders, started: Started) -> None:
    for _ in range(3):
        with pytest.raises(ValueError, match="token 7 is looked at in a text of 5"):
            finders.find(line(1.0, 0, 7))
        assert finders.find(line()) == line().words()
    assert len(started) == 2, "the processes go on"
    assert json.loads(answer(b"nothing\n")).keys() == {"error"}


def test_a_process_that_ends_loses_no_line(finders, started, caplog) -> None:
    wait(finders.start(), PATIENCE)
    for process in started:
        process.kill()
        process.wait(PATIENCE)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert finders.find(line()) == line().words()
    said = [record.message for record in caplog.records]
    assert len(said) == 2 and all("the server's own process for once" in one for one in said)
    assert len(started) == 4, "others are there for the next lines"


def test_they_end_with_the_server(finders: WordFinders, started: Started) -> None:
    finders.submit(lambda find: find(line()) and None).result(PATIENCE)
    [process] = started
    finders.close()
    assert process.poll() is not None
    with pytest.raises(RuntimeError):
        finders.submit(lambda _: None)
