"""Speak one line into a wav file through the hybrid crossbar decoder, without ComfyUI.

    python speak.py "Hello, this is the hybrid crossbar decoder speaking."

Needs Python 3.10 or later and nothing else: the first run makes an environment in ``.envs/speak`` and installs
torch, transformers and this pack's requirements into it. Without ``--checkpoint`` the demo voice in the pack speaks:
small, English only. It has four speakers (``--speaker michael``), and clones (``--reference recording.wav``).

The path of the file goes to stdout and everything else to stderr. The exit code is 0, 1 where the environment
cannot be made, 2 for bad input, and 130 when interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import install

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".envs" / "speak"
TORCH = (
    "torch==2.13.0",
    "transformers==4.57.3",
)  # the versions that the tests run; ComfyUI users keep their own
FORMATS = {".wav": "WAV", ".flac": "FLAC", ".ogg": "OGG", ".mp3": "MP3"}  # soundfile's names
# The engine's own limits, here because they are checked before there is an engine.
MOST_GROUPS = 15
MAX_SEED = 2**64 - 1


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, or these arguments; everything that does not need the model is checked here."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--checkpoint", type=Path, help="a Qwen3-TTS folder; none: the demo voice")
    voice = parser.add_mutually_exclusive_group()
    voice.add_argument("--speaker", help="a preset speaker; none: the checkpoint's first")
    voice.add_argument(
        "--reference",
        type=existing_file,
        help="a recording of 1-30 s to clone (the demo voice, Base checkpoints)",
    )
    voice.add_argument("--describe", help="the voice in words (VoiceDesign checkpoints)")
    parser.add_argument(
        "--transcript", help="the words of the recording: clones its manner of speaking too (ICL)"
    )
    parser.add_argument("--language", default="auto")
    parser.add_argument(
        "--seq-groups",
        type=whole_number(1, MOST_GROUPS),
        default=5,
        help="1-15; 15 is exact, less is approximate and faster",
    )
    parser.add_argument("--seed", type=whole_number(0, MAX_SEED), default=0)
    parser.add_argument("--out", type=writable_file, default="speech.wav", help="wav, flac, ogg or mp3")
    parser.add_argument("--here", action="store_true", help="use this Python as it is; install nothing")
    options = parser.parse_args(arguments)
    if not options.text.strip():
        parser.error("the text is empty: type something to say")
    if options.transcript and not options.reference:
        parser.error("--transcript is the words of a recording: give the recording with --reference")
    return options


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of whole numbers in ``low``..``high`` for argparse."""

    def read(word: str) -> int:
        with contextlib.suppress(ValueError):
            if low <= int(word) <= high:
                return int(word)
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number from {low} to {high}")

    return read


def existing_file(word: str) -> Path:
    """Read the path of a file that exists, for argparse."""
    if not os.path.isfile(word):
        raise argparse.ArgumentTypeError(f"{word} is not a file: give the path of a recording")
    return Path(word)


def writable_file(word: str) -> Path:
    """Read the path of a sound file that can be written, for argparse; checked now, before minutes of rendering."""
    path = Path(word)
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{word} is a folder: name a file, e.g. {path / 'speech.wav'}")
    if path.suffix.lower() not in FORMATS:
        raise argparse.ArgumentTypeError(f"{word} does not end in one of {', '.join(FORMATS)}: rename it")
    if not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"folder {path.parent} does not exist: create it, or choose another")
    try:
        if path.exists():
            path.open("r+b").close()
        unfinished(path).touch()
        unfinished(path).unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{word} cannot be written ({error.strerror}): choose another file or folder"
        ) from error
    return path


def unfinished(path: Path) -> Path:
    """Return the temporary path that a file is written to before it is renamed."""
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def run_in_environment() -> int:
    """Run this command again in an environment that has what the engine needs."""
    try:
        python = prepare_environment()
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"speak.py: the environment {ENVIRONMENT} cannot be made: {error}", sys.stderr)
        return 1
    return subprocess.run([python, __file__, "--here", *sys.argv[1:]], check=False).returncode


def prepare_environment() -> Path:
    """Create the environment if it does not exist; return its Python executable."""
    python = install.create_environment(ENVIRONMENT)
    ready = ENVIRONMENT / "ready"
    if not ready.exists():
        say(
            "first run: installing torch, transformers and the pack's requirements (a few minutes)",
            sys.stderr,
        )
        install.pip_install(python, *TORCH)
        install.pip_install(python, "-r", str(ROOT / "requirements.txt"))
        subprocess.run([python, str(ROOT / "install.py")], check=True, stdout=sys.stderr)
        ready.touch()
    return python


def speak(options: argparse.Namespace) -> str:
    """Load, speak and write the file; return the report."""
    import pack

    pack.load()
    import torch
    from qwen3_tts_morph.morph.checkpoint.find import demo_voice
    from qwen3_tts_morph.morph.options import GenerateOptions
    from qwen3_tts_morph.morph.render.lines import Line, render_lines
    from qwen3_tts_morph.morph.render.report import describe
    from qwen3_tts_morph.morph.synthesizer import Synthesizer

    recording = read_recording(options.reference) if options.reference else None
    path = options.checkpoint or demo_voice()
    synthesizer = Synthesizer.load(path, device="cuda" if torch.cuda.is_available() else "cpu")
    line = Line(
        options.text, make_voice(synthesizer.model, options, recording), options.language, options.seed
    )
    settings = GenerateOptions(seq_groups=options.seq_groups)
    started = time.perf_counter()
    with counted_frames() as show:
        spoken = render_lines(synthesizer, [line], settings, show)
    elapsed = time.perf_counter() - started
    write_sound(options.out.absolute(), spoken[0].waveform, spoken[0].sample_rate)
    return describe(synthesizer.model, spoken, settings, elapsed)


def read_recording(path: Path) -> tuple[Any, int]:
    """Return a recording as float32 ``[C, T]`` and its rate; ValueError for a file that is not one."""
    import soundfile

    try:
        waveform, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise ValueError(
            f"{path} cannot be read as a recording: give a wav, flac, ogg or mp3 file"
        ) from error
    return waveform.T, rate


def make_voice(model: Any, options: argparse.Namespace, recording: tuple[Any, int] | None) -> Any:
    """Return the voice chosen on the command line."""
    from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice

    if recording:
        mode = "icl" if options.transcript else "x_vector"
        return clone_voice(
            model, *recording, CloneOptions(mode, options.transcript, name=options.reference.stem)
        )
    if options.describe:
        return design_voice(model, options.describe)
    return preset_voice(model, options.speaker or (model.speakers or [""])[0])


@contextlib.contextmanager
def counted_frames() -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback that counts frames on one line of the terminal; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(done: int, expected: int) -> None:
        print(f"\rframe {done} of about {expected}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print(file=sys.stderr)


def write_sound(path: Path, waveform: Any, rate: int) -> None:
    """Write a sound file completely or not at all; ValueError if it cannot be written."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, waveform, rate, format=FORMATS[path.suffix.lower()])
    try:
        unfinished(path).write_bytes(buffer.getvalue())
        os.replace(unfinished(path), path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}): choose another with --out") from error
    finally:
        unfinished(path).unlink(missing_ok=True)


def say(text: object, stream: TextIO) -> None:
    """Print a line in the stream's encoding; ignore a closed pipe."""
    encoding = stream.encoding or "utf-8"
    shown = str(text).encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(shown, file=stream, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EINVAL):  # Windows calls a closed pipe an invalid argument
            raise
        # Python flushes the stream once more at exit, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main() -> int:
    """Speak with this Python for ``--here``, else in the environment. Bad input gets one error sentence."""
    try:
        options = parse_arguments()
        if not options.here:
            return run_in_environment()
        with contextlib.redirect_stdout(sys.stderr):  # upstream prints a warning when it is imported
            report = speak(options)
    except KeyboardInterrupt:
        return 130
    except ValueError as error:
        say(f"speak.py: {error}", sys.stderr)
        return 2
    say(report, sys.stderr)
    say(options.out.absolute(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
