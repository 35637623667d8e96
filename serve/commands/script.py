"""``script``: speak a script, or a list of lines, to a file per line, a track and subtitles.

An interrupted run resumes, and an edited script speaks only new lines.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...morph.audio.formats import FILES
from ...morph.model.names import known_language
from ...morph.options import GenerateOptions
from ...morph.runtime.atomic_file import name_beside
from ...morph.setting import settings_of
from ...morph.text.encoding import read_text_file
from ...morph.text.scripts.cues import Cue, write_cues
from ..scripts.script_run import MANIFEST, ScriptFolder, ScriptRun, open_folder, outputs
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import read_lists
from ..terminal.sound import write_atomic
from .speak import add_speech, write_words

if TYPE_CHECKING:
    import numpy as np

    from ...morph.batch.speaks import Speaks
    from ...morph.speech.lines import Spoken
    from ...morph.text.scripts.script import Script
    from ...morph.voice.cast import Cast
    from ...morph.words.captions import LineWords
    from ..scripts.backend import Reader

    NamedScript = tuple[Script, dict[str, str]]
    """A script with names as the cast spells them, and the voice of each name."""

JSON_LINES = (".jsonl", ".ndjson")
ROOM = 1 << 20  # bytes: a disk that has less is full


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=arguments.existing_file)
    parser.add_argument("--gap", type=arguments.number(0, 60), default=0.3)
    arguments.add_switch(parser, "--sentence-subtitles")
    add_shared(parser)


def add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=arguments.folder, metavar="FOLDER")
    parser.add_argument("--cast", type=arguments.part, action="append", default=[], metavar="NAME=VOICE")
    tracks = [suffix[1:] for suffix in FILES]
    parser.add_argument("--format", choices=tracks, default="wav")
    parser.add_argument(
        "--cast-lora", type=arguments.part_lora, action="append", default=[], metavar="NAME=FOLDER[:STRENGTH]"
    )
    arguments.add_setting(parser, settings_of(GenerateOptions)["batch_size"])
    parser.add_argument("--server", type=arguments.filled, metavar="NAME")
    arguments.add_switch(parser, "--consent")
    arguments.add_switch(parser, "--again")
    add_speech(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    arguments.check_line(parser, options)
    if options.out is None:
        options.out = Path(options.file.stem)
    if options.words and options.words.resolve() in map(Path.resolve, outputs(options)):
        parser.error(f"{options.words} has the subtitles: choose another file with --words")
    made = [*outputs(options), *filter(None, (options.words,))]
    written = (*made, options.out / MANIFEST)
    arguments.check_sources(parser, (options.file, options.reference, options.pronunciation), written)
    if not (options.out / MANIFEST).exists():  # no earlier run wrote these files
        for path in filter(Path.exists, made):
            parser.error(f"{path} is no earlier run's: choose another folder with --out, or move it away")
    here = ("checkpoint", "reference", "lora", "cast_lora")
    if given := [name.replace("_", "-") for name in here if getattr(options, name) and options.server]:
        parser.error(f"--{given[0]} needs a model on this computer: leave it out with --server")


def run(options: argparse.Namespace, console: Console) -> None:
    text, lists = read_text_file(options.file), read_lists(options)
    read = read_list(text) if options.file.suffix.lower() in JSON_LINES else read_script(text)
    from ..scripts.backend import open_backend

    with (
        open_folder(options, console) as folder,
        open_backend(options, console, read) as ready,
    ):
        # It imports torch: names are checked before.
        from ...morph.script.dialogue import ScriptRequest, make_lines

        script, voices = ready.script
        cast = {name: ready.cast[voice] for name, voice in voices.items()}
        request = ScriptRequest(text, cast, options.language, options.seed, lists)
        lines = make_lines(ready.speaks, script.lines, request, ready.settings)
        ScriptRun(folder, ready, script.lines, lines).speak()
        finish(folder, *write_samples(folder, ready.speaks, script))


def finish(folder: ScriptFolder, cues: Sequence[Cue], words: Sequence[LineWords]) -> None:
    """Write the track's subtitles, its words if requested, and the manifest; print the paths."""
    options, console = folder.options, folder.console
    track, srt, vtt = outputs(options)
    write_atomic(srt, write_cues(cues, "srt").encode())
    write_atomic(vtt, write_cues(cues, "vtt").encode())
    if options.words is not None:
        write_words(words, options)
        if count := sum(not line.words for line in words):
            console.note(
                f"{count} of {len(words)} lines have no word times, as their files were edited: delete these files to "
                "have the lines as they were spoken"
            )
    folder.write_manifest(complete=True)
    for path in filter(None, (track, srt, vtt, options.words)):
        console.result(path.absolute())


def read_list(text: str) -> Reader[NamedScript]:
    """Return a reader of a list of lines; ValueError for faults that do not depend on the cast."""
    from ..scripts.backend import find_name
    from ..scripts.line_list import parse_lines

    script, voices = parse_lines(text)

    def read(cast: Cast, languages: Sequence[str]) -> NamedScript:
        for line in script.lines:
            if line.language:
                known_language(line.language, languages, f"the checkpoint (line {line.number})")
        return script, {name: find_name(cast, voice) for name, voice in voices.items()}

    return read


def read_script(text: str) -> Reader[NamedScript]:
    """Return a reader of a script; ValueError for faults that do not depend on the cast."""
    from ...morph.text.scripts.script import check_script, parse_script

    check_script(text)

    def read(cast: Cast, languages: Sequence[str]) -> NamedScript:
        script = parse_script(text, list(cast), languages)
        return script, {line.name: line.name for line in script.lines}

    return read


def write_samples(folder: ScriptFolder, speaks: Speaks, script: Script) -> tuple[list[Cue], list[LineWords]]:
    """Write lines and silences into a sound file, line by line; return its captions and words."""
    import numpy as np

    from ...morph.script.dialogue import captions_of, spacing_of
    from ...postprocess.join import silences

    rate, options = speaks.rate, folder.options
    lead, gaps, tail = silences(spacing_of(script, options.gap), len(script.lines) - 1, rate)
    captions, start = list[Cue](), 0
    words: list[LineWords] = []
    with open_track(outputs(options)[0], rate) as write:
        for number, silence in enumerate([lead, *gaps], start=1):
            write(np.zeros(silence, np.float32))
            spoken, start = folder.read(number), start + silence
            captions += captions_of(start, spoken, options.sentence_subtitles)
            if options.words is not None:
                words.append(words_of(speaks, spoken, start))
            write(spoken.waveform)
            start += len(spoken.waveform)
        write(np.zeros(tail, np.float32))
    return captions, words


def words_of(speaks: Speaks, spoken: Spoken, start: int) -> LineWords:
    """Return the times of a line's words in the track; ``start``: the line's first sample."""
    from ...morph.words.captions import LineWords

    return LineWords(speaks.words(spoken), spoken.report.name).at(start / spoken.sample_rate)


@contextlib.contextmanager
def open_track(path: Path, rate: int) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield a writer of float ``[T]`` to a track, complete at the end; ValueError if it cannot be written."""
    import soundfile

    from ...morph.audio.writer import add_samples, open_file

    unfinished = name_beside(path)
    try:
        unfinished.touch(exist_ok=False)  # soundfile would follow an existing link
        with open_file(unfinished, rate, path.suffix[1:]) as file:
            yield partial(add_samples, file)
        unfinished.replace(path)
    except (OSError, soundfile.SoundFileError) as error:
        # libsndfile calls it a system error.
        reason = "the disk is full" if shutil.disk_usage(path.parent).free < ROOM else str(error)
        raise ValueError(f"{path} cannot be written ({reason}): choose another folder with --out") from error
    finally:
        unfinished.unlink(missing_ok=True)
