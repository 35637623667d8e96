"""``transcribe``: what a recording says, as text or as captions."""

import argparse

from ...morph.options import RECOGNISER, RECOGNISERS
from ...morph.text.scripts.cues import FORMATS, UNITS
from ...postprocess.checks import check_choice
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import folders_of
from ..terminal.sound import read_recording, write_atomic

TEXT = ".txt"
WRITTEN = (*(f".{one}" for one in FORMATS), TEXT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=arguments.existing_file)
    parser.add_argument("--language", default="auto")
    parser.add_argument("--recogniser", default=RECOGNISER, choices=RECOGNISERS, metavar="SIZE")
    parser.add_argument("--unit", default="sentence", choices=UNITS)
    parser.add_argument("--out", type=arguments.ending_in(WRITTEN), metavar="FILE")
    arguments.add_switch(parser, "--overwrite")
    arguments.add_folders(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.out is not None:
        arguments.check_new(parser, [options.out], options.overwrite)


def run(options: argparse.Namespace, console: Console) -> None:
    from ...morph.hearing.whisper import CODES, load_whisper
    from ...morph.words.captions import CaptionOptions, LineWords, write_captions

    check_choice("language", options.language, ("auto", *CODES))
    waveform, rate = read_recording(options.recording)
    recogniser = load_whisper(options.recogniser, folders_of(options).recognisers)
    with console.progress("s") as show:
        found = recogniser.transcribe_words(
            waveform.mean(axis=0), rate, options.language, lambda done, length: show(round(done), round(length))
        )
    if not found.words:
        raise ValueError(f"no words were recognised in {options.recording}: check the recording, and --language")
    if options.out is None:
        console.result(found.text)
        return
    text = f"{found.text}\n"
    if options.out.suffix.lower() != TEXT:
        format = options.out.suffix.lower()[1:]
        text = write_captions([LineWords(found.words)], CaptionOptions(format, options.unit))
    write_atomic(options.out, text.encode())
    console.note(f"{found.language}: wrote {options.out}")
