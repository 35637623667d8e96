"""``script``: speak a script, or a list of lines, to a file per line, a track and subtitles.

An interrupted run resumes, and an edited script speaks only new lines. Its folder has a sound file for each line, the
cache of its lines as they were spoken (``morph/kept/cache.py``), and a manifest. A line's sound file is named by its
number, its name and the first letters of its key; one that is there stays, so that it may be edited.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...morph.audio.formats import FILES
from ...morph.options import GenerateOptions
from ...morph.runtime.atomic_file import name_beside
from ...morph.setting import settings_of
from ...morph.text.encoding import read_text_file
from ...morph.text.scripts.cues import Cue, write_cues
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import read_lists
from ..terminal.folders import exclusive
from ..terminal.sound import explaining, read_recording, write_atomic, write_sound
from .speak import add_speech, write_words

if TYPE_CHECKING:
    import numpy as np

    from ...morph.batch.speech import Speaks
    from ...morph.kept.render import OnFrame
    from ...morph.speech.lines import Line, Spoken
    from ...morph.text.scripts.script import Script, ScriptLine
    from ...morph.words.captions import LineWords
    from ..script_backend import ScriptBackend

ROOM = 1 << 20  # bytes: a disk that has less is full
MANIFEST, LINES = "manifest.json", "lines"
FORMAT, VERSION = "qwen3-tts-morph script", 3
MOST_BYTES = 1 << 50  # no line goes while its script is there
SHOWN_KEY = 8  # letters of the key in a file's name
OWN_NAME = re.compile(rf"\d{{4,}}_.+_([0-9a-f]{{{SHOWN_KEY}}})\.(wav|flac)")
MOST_NAMED = 10  # lines in an error
TOGETHER = 512  # lines that are queued together: their sound is in memory until all of them have ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=arguments.existing_file)
    parser.add_argument("--gap", type=arguments.number(0, 60), default=0.3)
    arguments.add_switch(parser, "--sentence-subtitles")
    add_shared(parser)


def add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=arguments.folder, metavar="FOLDER")
    parser.add_argument("--cast", type=arguments.part, action="append", default=[], metavar="NAME=VOICE")
    parser.add_argument("--format", choices=[suffix[1:] for suffix in FILES], default="wav")
    adapter: dict[str, Any] = {"type": arguments.part_lora, "metavar": "NAME=FOLDER[:STRENGTH]"}
    parser.add_argument("--cast-lora", action="append", default=[], **adapter)
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
    from ..script_backend import open_backend, read_list, read_script

    text, lists = read_text_file(options.file), read_lists(options)
    read = read_list(text) if options.file.suffix.lower() in (".jsonl", ".ndjson") else read_script(text)
    with open_folder(options, console) as folder, open_backend(options, console, read) as ready:
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
            why = "as their files were edited: delete these files to have the lines as they were spoken"
            console.note(f"{count} of {len(words)} lines have no word times, {why}")
    folder.write_manifest(complete=True)
    for path in filter(None, (track, srt, vtt, options.words)):
        console.result(path.absolute())


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


@contextmanager
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


@dataclass
class ScriptFolder:
    """The folder of one script, ``options.out``, and the lines of this run, numbered from 1."""

    options: argparse.Namespace
    console: Console
    found: dict[str, Path]  # sound files by the letters of the key that they show
    files: dict[str, Path] = field(default_factory=dict)  # of this run's lines, by their keys
    # By their numbers, with their keys, and without their sound, which is in the file.
    lines: dict[int, tuple[str, Spoken]] = field(default_factory=dict)

    def save(self, number: int, key: str, spoken: Spoken) -> None:
        """Give a line its file: one that is there gets its new place, and is kept if it is readable, but ``again``."""
        if key not in self.files:  # lines of one sound share a file
            self.files[key] = self._place(number, key[:SHOWN_KEY], spoken)
        self.lines[number] = key, replace(spoken, waveform=spoken.waveform[:0].copy())

    def _place(self, number: int, shown: str, spoken: Spoken) -> Path:
        there, name = self.found.get(shown), re.sub(r"[^\w]+", "-", spoken.report.name).strip("-")[:40]
        # New files are exact, and lines are found in either format.
        ending = there.suffix if there else ".wav" if self.options.format == "wav" else ".flac"
        file: Path = self.options.out / f"{number:04d}_{name or 'line'}_{shown}{ending}"
        if there is not None:
            with explaining(there, "renamed", "choose another folder with --out"):
                os.replace(there, file)
        if self.options.again or not is_readable(file):
            write_sound(file, spoken.waveform, spoken.sample_rate)
        return file

    def read(self, number: int) -> Spoken:
        """Return a line with the sound of its file, which may have been edited; ValueError if unreadable."""
        key, spoken = self.lines[number]
        file = self.files[key]
        channels, rate = read_recording(file)
        if rate != spoken.sample_rate:
            raise ValueError(f"{file} has {rate} Hz and the track {spoken.sample_rate}: delete it, or convert it")
        waveform = channels.mean(axis=0)
        if len(waveform) == round(spoken.report.seconds * rate):
            return replace(spoken, waveform=waveform)
        # It was edited: its pieces are elsewhere.
        report = replace(spoken.report, seconds=len(waveform) / rate)
        return replace(spoken, waveform=waveform, report=report, spans=(), words=())

    def write_manifest(self, complete: bool = False) -> None:
        """Write the manifest: the script's lines by key in their order, with their files and reports."""
        lines = [self.lines[number] for number in sorted(self.lines)]
        known = {
            "format": FORMAT,
            "version": VERSION,
            "source": self.options.file.name,
            "complete": complete,
            **({"track": outputs(self.options)[0].name} if complete else {}),
            "lines": [key for key, _ in lines],
            "saved": {key: {"file": self.files[key].name, "report": asdict(one.report)} for key, one in lines},
        }
        content = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
        write_atomic(self.options.out / MANIFEST, content.encode())


@contextmanager
def open_folder(options: argparse.Namespace, console: Console) -> Iterator[ScriptFolder]:
    """Hold the folder of a script; ValueError for a folder of others."""
    folder, manifest = options.out, options.out / MANIFEST
    with explaining(f"folder {folder}", "made"):
        folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        if manifest.exists() and read_version(manifest) != VERSION:
            console.note("an earlier version of the program spoke these lines: they are spoken again; its files stay")
        found = {name[1]: path for path in folder.iterdir() if (name := OWN_NAME.fullmatch(path.name))}
        yield ScriptFolder(options, console, found)


def outputs(options: argparse.Namespace) -> tuple[Path, Path, Path]:
    track, srt, vtt = (options.out / f"{options.file.stem}.{kind}" for kind in (options.format, "srt", "vtt"))
    return track, srt, vtt


def is_readable(path: Path) -> bool:
    try:
        read_recording(path)
    except ValueError:
        return False
    return True


def read_version(path: Path) -> Any:
    """Return the version of a manifest; ValueError for a file that is none."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        manifest = json.loads(path.read_bytes())
        if manifest["format"] == FORMAT:
            return manifest["version"]
    raise ValueError(f"{path} is not a manifest of this program: choose another folder with --out, or delete it")


@dataclass
class ScriptRun:
    """The lines of a script while they are spoken into its folder."""

    folder: ScriptFolder
    backend: ScriptBackend
    script: Sequence[ScriptLine]
    lines: Sequence[Line]
    lost: dict[int, str] = field(default_factory=dict)  # why lines failed, by their indices
    cached: int = 0  # lines that have ended

    def speak(self) -> None:
        """Speak the lines that are not saved, and report them; ValueError for one that cannot be spoken."""
        options, console, speaks = self.folder.options, self.folder.console, self.backend.speaks
        self.lines = [replace(line, instruct=line.instruct or options.instruct) for line in self.lines]
        if found := self.backend.cast.describe_found():
            console.note(found)
        if options.words is not None:
            speaks.check_words()
        for line in self.lines:
            speaks.check(line, self.backend.settings)
        if replaced := ", ".join(path.name for path in outputs(options) if path.exists()):
            console.note(f"replacing what an earlier run wrote into {options.out}: {replaced}")
        self.folder.write_manifest()  # a folder that cannot be written is found now
        started = time.perf_counter()
        self._speak_all()
        self._report(time.perf_counter() - started)

    def _speak_all(self) -> None:
        from ...morph.batch.speech import OutOfService

        console, go_on = self.folder.console, "the same command goes on"
        if self.folder.options.again:
            go_on = "the same command without --again goes on; it keeps what earlier runs spoke of the rest"
        try:
            with console.progress("lines") as show:
                for begin in range(0, len(self.lines), TOGETHER):
                    self._speak_group(range(begin, min(begin + TOGETHER, len(self.lines))), show)
                    self.folder.write_manifest()
        except KeyboardInterrupt:
            console.note(f"interrupted with {self.cached} of {len(self.lines)} lines: {go_on}")
            raise
        except OutOfService as error:
            raise ValueError(f"{error}; {go_on}") from error
        if self.lost:
            first, *others = lost = sorted(self.lost)
            numbers = ", ".join(str(index + 1) for index in lost[:MOST_NAMED])
            more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
            what = f"{'lines' if others else 'line'} {numbers}{more} could not be spoken ({self.lost[first]})"
            raise ValueError(f"{what}: run the same command to retry; the others are saved")

    def _speak_group(self, group: range, show: OnFrame) -> None:
        from ...morph.kept.cache import LineCache
        from ...morph.kept.render import Listener, RenderOptions, speak_lines
        from ...morph.speech.lines import ERROR

        backend, options = self.backend, self.folder.options
        cache = LineCache(options.out / LINES, MOST_BYTES)

        def end(place: int, spoken: Spoken) -> None:
            if spoken.report.ended == ERROR:
                self.lost[group[place]] = spoken.report.error
                return
            self.cached += 1
            if backend.check is None:
                self._save(group[place], spoken)

        def count(done: int, expected: int) -> None:
            show(group.start + len(group) * done // expected, len(self.lines))

        how = RenderOptions(cache, backend.check, options.again)
        try:
            lines = [self.lines[index] for index in group]
            spoken = speak_lines(backend.speaks, lines, backend.settings, how, Listener(count, on_line=end))
        except Exception:
            if not self.lost.keys() >= set(group):  # no line of the group could be spoken
                raise
            return
        for index, one in zip(group, spoken, strict=True):
            if backend.check is not None and index not in self.lost:
                self._save(index, one)

    def _save(self, index: int, spoken: Spoken) -> None:
        from ...morph.script.dialogue import finish_line
        from ...morph.speech.lines import take_seed

        line, finish = self.lines[index], self.script[index]
        taken = replace(line, seed=take_seed(line.seed, spoken.take))
        key = self.backend.speaks.key(taken, self.backend.settings)
        facts = [taken.text, taken.seed, spoken.report.takes, finish.gain_db, finish.speed, finish.pitch]
        file_key = hashlib.sha256(json.dumps([key, *facts]).encode()).hexdigest()
        self.folder.save(index + 1, file_key, finish_line(spoken, finish))

    def _report(self, elapsed: float) -> None:
        from ...morph.speech.lines import WRONG

        # They ended in another order.
        lines = {number: self.folder.lines[number][1] for number in sorted(self.folder.lines)}
        new = [one for one in lines.values() if not one.report.from_before]
        console = self.folder.console
        if len(new) < len(lines):
            console.note(f"{len(lines) - len(new)} of {len(lines)} lines are spoken already")
        if new:
            console.note(self.backend.speaks.describe(new, self.backend.settings, elapsed))
        wrong = [number for number, one in lines.items() if one.report.ended in WRONG]
        if len(wrong) > sum(one.report.ended in WRONG for one in new):
            numbers = ", ".join(map(str, wrong))
            console.note(f"lines that went wrong, earlier ones included: {numbers}; try [take 2] before them")
