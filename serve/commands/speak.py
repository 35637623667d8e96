"""``speak``: speak one text into a file, or stream it to stdout; the text may be streamed too."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ...morph.audio.formats import FILES, PLAIN_STREAMS
from ...morph.options import LAYOUTS, GenerateOptions
from ...morph.text.scripts.cues import FORMATS, UNITS
from ..terminal import arguments
from ..terminal.arguments import ending_in
from ..terminal.console import Console
from ..terminal.engine import load_voice, make_check, make_settings, read_lists
from ..terminal.sound import find_device, playing, write_atomic, write_sound

if TYPE_CHECKING:
    from ...morph.kept.render import WordCheck
    from ...morph.speech.lines import Line, Spoken
    from ...morph.synthesizer import Synthesizer
    from ...morph.words.captions import LineWords


Sink = Callable[[bytes], object]
STDOUT = "-"
KINDS = (*(suffix[1:] for suffix in FILES), "pcm")
PIECE = 4096  # the most bytes of one read of stdin


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?")
    arguments.add_switch(parser, "--stdin")
    parser.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0])
    add_output(parser)
    arguments.add_switch(parser, "--play")
    add_speech(parser)


def add_speech(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that speaks lines."""
    arguments.add_voice(parser)
    arguments.add_settings(parser)
    arguments.add_pronunciation(parser)
    arguments.add_word_check(parser)
    group = parser.add_argument_group("words")
    group.add_argument("--words", type=ending_in([f".{one}" for one in FORMATS]), metavar="FILE")
    group.add_argument("--words-by", choices=UNITS, default="phrase")
    arguments.add_model(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=lambda word: word if word == STDOUT else arguments.sound_file(word),
        help=f"a file that ends in {', '.join(FILES)}, or - for stdout; default: speech.wav, speech-2.wav and so on",
    )
    arguments.add_switch(parser, "--overwrite")
    parser.add_argument("--format", choices=KINDS)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.stdin and options.text is not None:
        parser.error("give the text as an argument, or --stdin, not both")
    if not options.stdin and options.text is None:
        parser.error("there is no text: type it as an argument, or pipe it in with --stdin")
    if options.stdin and sys.stdin is None:
        parser.error("stdin is closed: pipe the text in, or type it as an argument")
    arguments.check_line(parser, options)
    if options.pronunciation and options.layout == "token":
        parser.error("--pronunciation needs whole sentences: leave out --layout token")
    if options.format == "pcm" and options.out != STDOUT:
        parser.error("pcm has no file format: write it to stdout with --out -")
    if options.check_words and (options.stdin or options.play or options.out == STDOUT):
        parser.error("--check-words hears a line when it is complete: leave out --stdin, --play and --out -")
    if options.play and options.out == STDOUT:
        parser.error("--play and --out - are two ways to hear it: leave one out")
    if options.play and options.format is not None and options.out is None:
        parser.error("--format is that of a file: name one with --out")
    if options.out is None and not options.play:
        options.out = arguments.free_output(parser, Path(f"speech.{options.format or 'wav'}"))
    elif isinstance(options.out, Path) and options.format not in (None, options.out.suffix[1:].lower()):
        parser.error(f"--format {options.format} and --out {options.out} differ: leave one out")
    written = [path for path in (options.out, options.words) if isinstance(path, Path)]
    arguments.check_sources(parser, (options.reference, options.pronunciation), written)
    arguments.check_new(parser, written, options.overwrite)


def run(options: argparse.Namespace, console: Console) -> None:
    if options.out == STDOUT:
        console.check_sound()
    device = find_device() if options.play else None
    ear, lists = make_check(options), read_lists(options)
    synthesizer, voice = load_voice(options, console)
    from ...morph.audio.writer import encode_by_libsndfile
    from ...morph.speech.lines import Line
    from ...morph.speech.report import describe
    from ...morph.speech.takes import check_word_times, word_times
    from ...morph.words.captions import LineWords

    if options.words is not None:
        check_word_times(synthesizer.model)
    text = options.text if not options.stdin else stdin_text()
    about = {"layout": options.layout, "pronunciation": lists}
    line = Line(text, voice, options.language, options.seed, options.instruct, **about)
    settings = make_settings(synthesizer.model, options)
    started = time.perf_counter()
    with open_sink(options, device, synthesizer.model.sample_rate, console) as sink:
        if is_streamed(options):
            once = replace(settings, retries=0)  # played audio cannot be replaced
            spoken = speak_live(synthesizer, line, once, sink, console)
        elif options.stdin:
            spoken = speak_live(synthesizer, line, settings, lambda _: None, console)
        else:
            spoken = speak_complete(synthesizer, line, settings, ear, console)
            if options.out == STDOUT:
                sink(encode_by_libsndfile(spoken.waveform, spoken.sample_rate, options.format))
    if isinstance(options.out, Path):
        write_sound(options.out.absolute(), spoken.waveform, spoken.sample_rate)
    if options.words is not None:
        words = LineWords(word_times(synthesizer.model, spoken), spoken.report.name)
        write_words([words], options)
    elapsed = time.perf_counter() - started
    console.note(describe(synthesizer.model, [spoken], settings, elapsed))
    if isinstance(options.out, Path):
        console.result(options.out.absolute())
    if options.words is not None and options.out != STDOUT:
        console.result(options.words.absolute())


def is_streamed(options: argparse.Namespace) -> bool:
    """Return whether to stream: on stdout some formats are only complete at the end."""
    return bool(options.play) or (options.out == STDOUT and (options.format or "wav") in PLAIN_STREAMS)


@contextlib.contextmanager
def open_sink(options: argparse.Namespace, device: Any, rate: int, console: Console) -> Iterator[Sink]:
    from ...morph.audio.writer import open_encoder

    if options.play:
        with playing(device, rate) as speaker:
            yield speaker.write
    elif options.out == STDOUT:
        with console.sound() as stdout:
            if is_streamed(options):
                write_all(stdout, open_encoder(options.format or "wav", rate).finish())  # its header
            yield partial(write_all, stdout)
    else:
        yield lambda _: None


def speak_complete(
    synthesizer: Synthesizer, line: Line, settings: GenerateOptions, ear: WordCheck | None, console: Console
) -> Spoken:
    """Return an offline line, after the word check."""
    from ...morph.batch.batch import Batch
    from ...morph.kept.render import Listener, RenderOptions, speak_lines

    with console.progress() as show, Batch(synthesizer, settings.batch_size, linger_s=None) as speaks:
        return speak_lines(speaks, [line], settings, RenderOptions(check=ear), Listener(show))[0]


def speak_live(synthesizer: Synthesizer, line: Line, settings: GenerateOptions, sink: Sink, console: Console) -> Spoken:
    """Stream a line to a sink and return it; the engine's thread runs ahead of the playback."""
    from ...morph.batch.batch import Batch
    from ...postprocess.convert import to_s16

    with console.progress() as show, Batch(synthesizer, 1, linger_s=None) as batch:
        speech = batch.speak(line, settings)
        for chunk in speech:
            sink(to_s16(chunk.samples).tobytes())
            show(speech.progress.done, max(speech.progress.expected, speech.progress.done + 1))
        return speech.result()


def write_all(sink: BinaryIO, content: bytes) -> None:
    """Write to an unbuffered stream, which may accept parts only."""
    left = memoryview(content)
    while left:
        left = left[sink.write(left) :]


def stdin_text() -> Iterator[str]:
    if os.name == "nt" and sys.stdin.isatty():  # Python knows the console's encoding
        return iter(sys.stdin)
    return read_text(sys.stdin.fileno())


def read_text(source: int) -> Iterator[str]:
    """Yield the UTF-8 text of a file descriptor as it comes; ValueError for other bytes.

    Python's own buffers are not used: a program that ends while a thread waits in them aborts.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        while piece := os.read(source, PIECE):
            if text := decoder.decode(piece):
                yield text
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"the text on stdin is not UTF-8 ({error.reason}): convert it") from error


def write_words(lines: Sequence[LineWords], options: argparse.Namespace) -> None:
    """Write word times of lines; ValueError if the file cannot be written."""
    from ...morph.words.captions import CaptionOptions, write_captions

    wanted = CaptionOptions(options.words.suffix[1:].lower(), options.words_by)
    write_atomic(options.words, write_captions(lines, wanted).encode())
