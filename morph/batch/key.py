"""The key of a line: a digest of everything that decides its sound.

Two numbers stand for the code, so that an update that changes no sound forgets no line. A test speaks recorded lines
(``tests/morph/test_versions.py``), and fails until the right one is raised.
"""

import hashlib
import json
import platform
from dataclasses import asdict
from typing import Any

import torch

from ..options import GenerateOptions
from ..setting import settings_of
from ..speech.lines import Line
from ..speech.pieces import normalizer_of, piece_limit
from ..synthesizer import Synthesizer
from ..tested import installed
from ..voice.file import voice_digest

# Raise it when the same line sounds otherwise, also after a change of the demo voice: no cached line is used any more.
SOUND_VERSION = 1
# Raise it when texts are written out otherwise: only lines of checkpoints that need that are affected.
TEXT_VERSION = 1
# Settings that are not in the key. The key has the effects of ``split_chars`` and ``normalize``, ``batch_size`` only
# changes rounding, as fallbacks of the engine do, and ``retries`` are stored with a line (``kept/cache.py``).
APART = ("batch_size", "split_chars", "normalize", "retries")


def common_key(synthesizer: Synthesizer, options: GenerateOptions) -> str:
    """Return a digest of code, machine, checkpoint and options; "" for a model that was not loaded from files."""
    model = synthesizer.model
    if not model.fingerprint:
        return ""
    choice, device = synthesizer.engine.choose(model), model.device
    written = normalizer_of(model, options).language
    versions = [TEXT_VERSION, installed("kitten-text-processing"), installed("num2words")]
    return _digest(
        {
            "sound": SOUND_VERSION,
            "text": [piece_limit(model, options), written, *(versions if written else ())],
            # torch computes both engines' sums. numpy only moves and cuts samples.
            "torch": [platform.machine(), torch.__version__],
            "device": [device.type, torch.cuda.get_device_name(device) if device.type == "cuda" else ""],
            "checkpoint": model.fingerprint,
            "model": [str(model.dtype), model.attention, model.weights, model.size],
            # "upstream" is what the codec of one line was called when lines were first kept.
            "engine": [choice.engine, "batch" if choice.batch_codec else "upstream"],
            "sampling": asdict(options.sampling or model.sampling),
            "options": {name: getattr(options, name) for name in settings_of(GenerateOptions) if name not in APART},
        }
    )


def line_key(common: str, line: Line) -> str:
    """Return the key of a line with a complete text; ``common``: of ``common_key``."""
    return _digest(
        {
            "common": common,
            "voice": voice_digest(line.voice),
            "language": line.language.strip().lower(),
            "instruct": (line.voice.instruct if line.instruct is None else line.instruct) or "",
            "text": line.as_read(str(line.text)),
            "seed": line.seed,
        }
    )


def _digest(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
