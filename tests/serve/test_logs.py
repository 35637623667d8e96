"""What the server logs: none of the texts that are spoken."""

import subprocess
import sys

from pack import ROOT

SCRIPT = """
import pack
pack.load()
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.serve.logs import start_log
import logging

start_log()
for text in ("I owe $5 to ann@example.com.", "My rent is $850, and it is 5/6 of 1/2 @ home.", "The price: $5.25."):
    Normalizer("en").write_out(text)
logging.getLogger("qwen3_tts_morph").info("the log works")
"""


def test_no_sentence_is_logged() -> None:
    """In a process of its own: the log belongs to the whole process."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines() == ["INFO qwen3_tts_morph: the log works"]
