"""In a process of its own: what a fork finds, and a process that ends while a line is spoken."""

import os
import subprocess
import sys

import pytest

from pack import ROOT
from tests.patience import PATIENCE

BEGIN = """
import os, sys, traceback
import pack
pack.load()
from pathlib import Path
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.synthesizer import Engine
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.batch.batch import Batch
from lab.streams import stream_line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
model = load_model(Path(sys.argv[1]))
synthesizer = Synthesizer(model, Engine(sys.argv[2]))
voice = preset_voice(model, "ryan")
"""
# What was made before a fork says so in the child, and does not keep it from ending.
FORK = """
line, options = Line("Hello there.", voice), GenerateOptions(5, Sampling(max_new_tokens=9))

def refused(call):
    try:
        call()
    except Exception as error:
        return str(error)

def in_child(check):
    child = os.fork()
    if not child:
        done = False
        try:
            done = check()
        except BaseException:
            traceback.print_exc()
        os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0, check.__name__

service = Batch(synthesizer, 1, linger_s=0.0)
list(service.speak(line, options))

def says():
    service.close()
    calls = (
        lambda: service.speak(line, options),
        lambda: Batch(synthesizer, 1),
        lambda: list(stream_line(synthesizer, line, options)),
        model.exclusive().__enter__,
    )
    return all("load the model in this process" in refused(call) for call in calls)

with model.exclusive():  # nobody speaks behind this
    pass
child = os.fork()
if not child:
    sys.exit(7)  # through the exit handlers of all libraries
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
in_child(says)
print("forked")
"""
# A thread that is in torch when Python ends would abort it, with exit code 134.
END = """
service = Batch(synthesizer, 1)
service.speak(Line("A line that takes a while. " * 20, voice)).take()
print("speaks", flush=True)
"""


def run(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture(scope="module")
def ended(checkpoint) -> subprocess.CompletedProcess[str]:
    """A process that has forked, where that can be, and ends while it speaks."""
    fork = FORK if hasattr(os, "fork") else ""
    return run(BEGIN + fork + END, checkpoint("tiny", "custom_voice"), "graph")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_says_what_to_do_and_ends(ended) -> None:
    assert ended.stdout.split()[:1] == ["forked"], ended.stderr


def test_a_program_may_end_while_a_service_speaks(ended) -> None:
    assert ended.stdout.split()[-1:] == ["speaks"] and ended.returncode == 0, ended.stderr
