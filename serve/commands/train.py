"""``train``: train a voice on recordings of one speaker."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ...morph.options import CONSENT, RECOGNISER, RECOGNISERS, TRAINING_UPDATES
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import find_checkpoint, folders_of, load_at

OFF = "off"
OPTIONS = {"steps": int, "rank": int, "rate": float, "batch": int, "frames": int, "layers": str}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=arguments.folder)
    parser.add_argument("--name", type=arguments.filled, required=True)
    arguments.add_switch(parser, "--consent")
    parser.add_argument("--length", choices=TRAINING_UPDATES, default="normal")
    parser.add_argument("--speaker", type=arguments.filled)
    parser.add_argument("--language", default="auto")
    parser.add_argument("--recogniser", choices=(OFF, *RECOGNISERS), default=RECOGNISER, metavar="SIZE")
    for name, kind in OPTIONS.items():
        parser.add_argument(f"--{name}", type=kind)
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.consent:
        parser.error(f"{CONSENT}: add --consent to confirm it")


def run(options: argparse.Namespace, console: Console) -> None:
    from ...morph.hearing.whisper import load_whisper
    from ...morph.speech.lines import Spoken
    from ...morph.training.pairs import read_folder
    from ...morph.training.train_voice import Places, VoiceTraining, Watcher, train_voice
    from ...morph.training.trainer import Losses, Training
    from ...morph.voice.create import preset_voice

    given = {name: value for name in OPTIONS if (value := getattr(options, name)) is not None}
    training = Training(**{"steps": TRAINING_UPDATES[options.length], **given})
    folders = folders_of(options)
    voice_file = folders.library.path(options.name)
    places = Places(folders.adapters[0] / voice_file.stem, voice_file)
    recordings, refused = read_folder(options.folder)
    recogniser = None if options.recogniser == OFF else load_whisper(options.recogniser, folders.recognisers)
    model = load_at(find_checkpoint(options, console), options).model
    voice = preset_voice(model, options.speaker) if options.speaker else None
    asked = VoiceTraining(voice_file.stem, recordings, voice, options.language, training, refused)
    with console.progress("updates") as bar:

        class Terminal(Watcher):
            def say(self, text: str) -> None:
                console.note(text)

            def advance(self, done: int, of: int, left: str) -> None:
                bar(done, of)

            def show_losses(self, history: Sequence[Losses]) -> None:
                console.note(describe(history[-1]))

            def play(self, name: str, sample: Spoken) -> None:
                """Samples are for ComfyUI's page."""

        trained = train_voice(model, asked, recogniser, places, Terminal())
    console.note(trained.report)
    console.note(f"speak with --lora {places.folder.name} --voice {voice_file.stem}")
    console.result(places.folder.absolute())


def describe(now: Any) -> str:
    held_out = f", of the held-out recordings {sum(now.held_out):.2f}" if now.held_out else ""
    return f"update {now.step}: loss {sum(now.training):.2f}{held_out}"
