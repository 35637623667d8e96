"""``speak``: one text, into a file, or to stdout while it is made; the text may come while it is spoken."""

from __future__ import annotations

import argparse
import codecs
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import load_synthesizer, make_settings, make_voice, read_reference
from ..terminal.parser import examples
from ..terminal.player import find_device, playing
from ..terminal.sound import STREAMED, encode, stream_header, to_s16, write_sound

if TYPE_CHECKING:
    from ...morph.batch.stream import SpeechStream
    from ...morph.options import GenerateOptions
    from ...morph.speech.lines import Line, Spoken
    from ...morph.synthesizer import Synthesizer

STDOUT = "-"
KINDS = ("wav", "flac", "mp3", "opus", "ogg", "pcm")
EPILOG = examples(
    '"Hello there."',
    '"Hello there." --out hello.mp3 --seed 7',
    '"Hello there." --reference recording.wav --play',
    "--stdin --out - --format pcm",
)
PIECE = 4096  # bytes of stdin at a time: what has come, up to this


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``speak``."""
    parser.add_argument("text", nargs="?", help="what to say; none: --stdin has it")
    parser.add_argument("--stdin", action="store_true", help="speak the text on stdin, while it comes")
    parser.add_argument(
        "--layout",
        choices=arguments.LAYOUTS,
        default=arguments.LAYOUTS[0],
        help="of a text on stdin: sentence by sentence, or token by token (voices cloned without transcript)",
    )
    parser.add_argument(
        "--out",
        type=sound_or_stdout,
        help="a wav, flac, ogg, mp3 or opus file, or - for stdout; default: speech.wav, speech-2.wav and so on",
    )
    arguments.add_overwrite(parser)
    parser.add_argument(
        "--play", action="store_true", help="speak aloud, while it is made; a file is written only with --out"
    )
    parser.add_argument(
        "--format",
        choices=KINDS,
        help="with --out -: wav and pcm (signed 16 bits, 24 kHz, mono) come while they are made; default: wav",
    )
    arguments.add_voice(parser)
    arguments.add_settings(parser)
    arguments.add_model(parser)


def sound_or_stdout(word: str) -> Path | str:
    """Read the path of a sound file, or ``-``, for argparse."""
    return word if word == STDOUT else arguments.sound_file(word)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error for options that do not fit together."""
    if options.stdin == (options.text is not None):
        parser.error("give the text as an argument, or --stdin, not both" if options.stdin else NO_TEXT)
    if options.stdin and sys.stdin is None:
        parser.error("stdin is closed: pipe the text in, or type it as an argument")
    if options.text is not None:
        arguments.check_text(parser, options.text)
    arguments.check_voice(parser, options)
    if options.format == "pcm" and options.out != STDOUT:
        parser.error("pcm has no file format: write it to stdout with --out -")
    if options.play:
        check_play(parser, options)
    elif options.out is None:
        try:
            free = arguments.free_file(Path(f"speech.{options.format or 'wav'}"))
            options.out = arguments.sound_file(str(free))
        except argparse.ArgumentTypeError as error:
            parser.error(str(error))
    elif options.out != STDOUT and options.format not in (None, options.out.suffix[1:].lower()):
        parser.error(f"--format {options.format} and --out {options.out} differ: leave one out")
    if isinstance(options.out, Path):
        arguments.check_sources(parser, (options.reference,), (options.out,))
        arguments.check_new(parser, (options.out,), options.overwrite)


def check_play(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error for options that do not fit to ``--play``."""
    if options.out == STDOUT:
        parser.error("--play and --out - are two ways to hear it: leave one out")
    if options.format is not None and options.out is None:
        parser.error("--format is that of a file: name one with --out")


NO_TEXT = "there is no text: type it as an argument, or pipe it in with --stdin"


def run(options: argparse.Namespace, console: Console) -> int:
    """Speak; the path of the file goes to stdout, or the sound itself, or the sound to the loudspeaker."""
    if options.out == STDOUT:
        console.check_sound()
    device = find_device() if options.play else None
    recording = read_reference(options)
    synthesizer = load_synthesizer(options, console)
    from ...morph.speech.lines import Line
    from ...morph.speech.report import describe

    text = options.text if not options.stdin else stdin_text()
    voice = make_voice(synthesizer.model, options, recording)
    line = Line(text, voice, options.language, options.seed, options.instruct, layout=options.layout)
    settings = make_settings(synthesizer.model, options)
    started = time.perf_counter()
    if options.out == STDOUT:
        spoken = speak_to_stdout(synthesizer, line, settings, options.format or "wav", console)
    elif device is not None:
        spoken = speak_aloud(synthesizer, line, settings, device, console)
        if options.out is not None:
            write_sound(options.out.absolute(), spoken.waveform, spoken.sample_rate)
    else:
        spoken = speak_to_file(synthesizer, line, settings, options.out, console)
    elapsed = time.perf_counter() - started
    console.note(describe(synthesizer.model, [spoken], settings, elapsed))
    if isinstance(options.out, Path):
        console.result(options.out.absolute())
    return 0


def speak_to_file(
    synthesizer: Synthesizer, line: Line, settings: GenerateOptions, path: Path, console: Console
) -> Spoken:
    """Speak a line into a file."""
    from ...morph.batch.stream import stream_line
    from ...morph.speech.lines import render_lines

    with console.progress() as show:
        if isinstance(line.text, str):
            [spoken] = render_lines(synthesizer, [line], settings, show)
        else:
            with stream_line(synthesizer, line, settings, show) as stream:
                spoken = finish(stream)
    write_sound(path.absolute(), spoken.waveform, spoken.sample_rate)
    return spoken


def speak_aloud(
    synthesizer: Synthesizer, line: Line, settings: GenerateOptions, device: Any, console: Console
) -> Spoken:
    """Speak a line to the sound device while it is made; the engine's thread runs ahead of what is heard."""
    from dataclasses import replace

    from ...morph.batch.stream import stream_line

    once = replace(settings, retries=0)  # what was heard cannot be taken back
    with (
        console.progress() as show,
        stream_line(synthesizer, line, once, show) as stream,
        playing(device, stream.sample_rate) as sink,
    ):
        for chunk in stream:
            sink.write(to_s16(chunk.samples).tobytes())
        return finish(stream)


def speak_to_stdout(
    synthesizer: Synthesizer, line: Line, settings: GenerateOptions, kind: str, console: Console
) -> Spoken:
    """Speak a line to stdout: while it is made, or, in a format that must be complete, at its end."""
    from dataclasses import replace

    from ...morph.batch.stream import stream_line

    once = (
        replace(settings, retries=0) if kind in STREAMED else settings
    )  # what was heard cannot be taken back
    with (
        console.sound() as sink,
        console.progress() as show,
        stream_line(synthesizer, line, once, show) as stream,
    ):
        if kind in STREAMED:
            write_all(sink, stream_header(kind, stream.sample_rate))
            for chunk in stream:
                write_all(sink, to_s16(chunk.samples).tobytes())
        spoken = finish(stream)
        if kind not in STREAMED:
            write_all(sink, encode(spoken.waveform, spoken.sample_rate, f".{kind}"))
    return spoken


def write_all(sink: BinaryIO, content: bytes) -> None:
    """Write to an unbuffered stream, which may take a part at a time."""
    left = memoryview(content)
    while left:
        left = left[sink.write(left) :]


def finish(stream: SpeechStream) -> Spoken:
    """Read a stream of one line to its end, and return the line."""
    for _ in stream:
        pass
    [spoken] = stream.spoken
    return spoken


def stdin_text() -> Iterator[str]:
    """Yield the text on stdin as it comes."""
    if os.name == "nt" and sys.stdin.isatty():  # a console there has another encoding, which Python knows
        return iter(sys.stdin)
    return read_text(sys.stdin.fileno())


def read_text(source: int) -> Iterator[str]:
    """Yield the UTF-8 text of a file descriptor as it comes.

    It is read below Python's own buffers: a program that ends while a thread waits in them aborts.

    Raises:
        ValueError: for bytes that are not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        while piece := os.read(source, PIECE):
            if text := decoder.decode(piece):
                yield text
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"the text on stdin is not UTF-8 ({error.reason}): convert it") from error
