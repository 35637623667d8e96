"""Speak one line into a wav file through the hybrid crossbar decoder, without ComfyUI.

    python speak.py "Hello, this is the hybrid crossbar decoder speaking."

Needs Python 3.10 or later and nothing else: the first run makes an environment in ``.envs/speak`` and installs
torch, transformers and this pack's requirements into it. Without ``--checkpoint`` the demo voice in the pack speaks:
small, English only. It has four speakers (``--speaker michael``), and clones (``--reference recording.wav``).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import install

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".envs" / "speak"
TORCH = ("torch==2.13.0", "transformers==4.57.3")  # what the tests run; ComfyUI users keep their own


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, or these arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--checkpoint", type=Path, help="a Qwen3-TTS folder; none: the demo voice")
    parser.add_argument("--speaker", help="a preset speaker; none: the checkpoint's first")
    parser.add_argument(
        "--reference", type=Path, help="a recording of 1-30 s to clone (the demo voice, Base checkpoints)"
    )
    parser.add_argument("--transcript", help="what the recording says: clones its manner too (ICL)")
    parser.add_argument("--describe", help="the voice in words (VoiceDesign checkpoints)")
    parser.add_argument("--language", default="auto")
    parser.add_argument(
        "--seq-groups", type=int, default=5, help="1-15; 15 is exact, less is approximate and faster"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("speech.wav"))
    parser.add_argument("--here", action="store_true", help="use this Python as it is; install nothing")
    return parser.parse_args(arguments)


def run_in_environment() -> int:
    """Run this command again in an environment that has what the engine needs."""
    python = install.create_environment(ENVIRONMENT)
    ready = ENVIRONMENT / "ready"
    if not ready.exists():
        print(
            "first run: installing torch, transformers and the pack's requirements (a few minutes)",
            flush=True,
        )
        install.pip_install(python, *TORCH)
        install.pip_install(python, "-r", str(ROOT / "requirements.txt"))
        subprocess.run([python, str(ROOT / "install.py")], check=True)
        ready.touch()
    return subprocess.run([python, __file__, "--here", *sys.argv[1:]], check=False).returncode


def speak(options: argparse.Namespace) -> None:
    """Load, speak, write the wav, and say how it went."""
    import pack

    pack.load()
    import soundfile
    import torch
    from qwen3_tts_morph.morph.checkpoint import demo_voice
    from qwen3_tts_morph.morph.load import load_model
    from qwen3_tts_morph.morph.options import GenerateOptions
    from qwen3_tts_morph.morph.render import Line, render_lines
    from qwen3_tts_morph.morph.report import describe

    path = options.checkpoint or demo_voice()
    model = load_model(path, device="cuda" if torch.cuda.is_available() else "cpu")
    line = Line(options.text, make_voice(model, options), options.language, options.seed)
    settings = GenerateOptions(seq_groups=options.seq_groups)
    started = time.perf_counter()
    spoken = render_lines(model, [line], settings, show_frames)
    elapsed = time.perf_counter() - started
    soundfile.write(options.out, spoken[0].waveform, spoken[0].sample_rate)
    print(f"\r{describe(model, spoken, settings, elapsed)}\nwritten to {options.out.resolve()}")


def make_voice(model: object, options: argparse.Namespace) -> object:
    """The voice that the command line asks for."""
    import soundfile
    from qwen3_tts_morph.morph.voice import clone_voice, design_voice, preset_voice

    if options.reference:
        waveform, rate = soundfile.read(options.reference, dtype="float32", always_2d=True)
        mode = "icl" if options.transcript else "x_vector"
        return clone_voice(model, waveform.T, rate, mode, options.transcript, name=options.reference.stem)
    if options.describe:
        return design_voice(model, options.describe)
    return preset_voice(model, options.speaker or (model.speakers or [""])[0])


def show_frames(done: int, expected: int) -> None:
    """Count frames on one line of the terminal."""
    print(f"\rframe {done} of about {expected}", end="", flush=True)


def main() -> int:
    """Speak here when asked to, else in the environment; bad input gets its sentence and exit code 2."""
    options = parse_arguments()
    if not options.here:
        return run_in_environment()
    try:
        speak(options)
    except ValueError as error:
        print(f"speak.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
