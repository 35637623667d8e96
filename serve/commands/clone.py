"""``clone``: save the voice of a recording."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...morph.options import RECOGNISER, RECOGNISERS
from ...morph.text.encoding import read_text_file
from ...morph.voice.library import save_source
from ...morph.voice.voice import Voice
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import folders_of, load_synthesizer
from ..terminal.folders import Folders
from ..terminal.sound import explaining, read_recording

if TYPE_CHECKING:
    import numpy as np

VOICE_FILE = ".safetensors"
voice_file = arguments.ending_in((VOICE_FILE,))
LATEST_S = 86_400.0  # of a recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=arguments.existing_file)
    moment = arguments.number(0, LATEST_S)
    parser.add_argument("--start", type=moment, metavar="S")
    parser.add_argument("--end", type=moment, metavar="S")
    arguments.add_switch(parser, "--best")
    words = parser.add_mutually_exclusive_group()
    words.add_argument("--transcript", type=arguments.filled)
    words.add_argument("--transcript-file", type=arguments.existing_file)
    words.add_argument("--transcribe", nargs="?", const=RECOGNISER, choices=RECOGNISERS, metavar="SIZE")
    arguments.add_switch(parser, "--pad")
    parser.add_argument("--name", type=arguments.filled)
    parser.add_argument("--out", type=voice_file, metavar="FILE")
    arguments.add_switch(parser, "--overwrite")
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.best and (options.start is not None or options.end is not None):
        parser.error("--best chooses the part itself: leave out --start and --end")
    if options.pad and not (options.transcript or options.transcript_file or options.transcribe):
        parser.error("--pad is for clones with a transcript: give the words of the recording")


def run(options: argparse.Namespace, console: Console) -> None:
    transcript = options.transcript
    if options.transcript_file:
        transcript = read_text_file(options.transcript_file)
        if not transcript.strip():
            raise ValueError(f"{options.transcript_file} is empty: write what the recording says into it")
    name = options.name or options.recording.stem
    folders = folders_of(options)
    path = choose_path(options, folders, name)
    waveform, rate = read_recording(options.recording)
    waveform = choose_part(options, waveform, rate, console)
    if options.transcribe:
        from ...morph.hearing.whisper import load_whisper
        from ...morph.voice.recording import transcribe_recording

        recogniser = load_whisper(options.transcribe, folders.recognisers)
        transcript = transcribe_recording(recogniser, waveform, rate)
        console.note(f"{recogniser.name} heard: {transcript}")
    from ...morph.voice.create import CloneOptions, clone_voice  # torch

    clone = CloneOptions("icl" if transcript else "x_vector", transcript, options.pad, name)
    model = load_synthesizer(options, console).model
    save(clone_voice(model, waveform, rate, clone), path, console)  # its notes are logged


def choose_part(options: argparse.Namespace, waveform: np.ndarray, rate: int, console: Console) -> np.ndarray:
    """Return the part that the options choose, and print it; else all, with a note if a part is better."""
    from ...morph.voice.measure import better_part, cut_part, measure

    part, told = cut_part(waveform, rate, options.start or 0, options.end or 0, options.best)
    if not told:
        measured = measure(waveform, rate)
        icl = bool(options.transcript or options.transcript_file or options.transcribe)
        if better := better_part(measured, icl):
            told = (f"all {measured.seconds:.1f} s are taken; {better} make a better voice: add --best",)
    for line in told:
        console.note(line)
    return part


def choose_path(options: argparse.Namespace, folders: Folders, name: str) -> Path:
    """Return the path of the new voice; ValueError for an existing or unreadable file."""
    path: Path = options.out or folders.library.path(name)
    with explaining(path, "read", "change the folder's permissions"):
        exists = path.exists()
    if exists and not options.overwrite:
        raise ValueError(f"{path} exists already: choose another name, or add --overwrite")
    return path


def save(voice: Voice, path: Path, console: Console) -> None:
    with explaining(path, "written"):
        save_source(voice, path)
    console.note(f"saved {voice.kind} voice {path.stem!r}: speak with --voice {path.stem!r}")
    console.result(path.absolute())
