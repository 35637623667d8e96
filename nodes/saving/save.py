"""The nodes that save speech and captions to files, and read the facts of such a file."""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import folder_paths
from comfy_api.latest import io, ui

from ...morph.audio.formats import FILES, TAGGED, read_comment
from ...morph.audio.writer import check_fits, encode_tagged
from ...morph.text.names import check_name, confine
from ...morph.text.scripts.cues import FORMATS, UNITS, read_cues, write_cues
from ...morph.text.split import check_encodable
from ...morph.words.captions import MOST_CHARS, CaptionOptions, write_captions
from ...postprocess.checks import check_choice, check_range
from .. import inputs
from ..folders import NO_FILE, chosen_file, chosen_state, input_files
from ..inputs import WordsSocket, schema
from ..sound.values import Facts, SpokenWords, check_words, from_json
from .recordings import listed, recordings_of, replace_run, write_new, write_run

OF_SUBTITLES = ("srt", "vtt")
DEFAULTS = CaptionOptions()


class SaveSubtitles(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSaveSubtitles",
        inputs=lambda: [
            io.String.Input("srt", force_input=True),
            io.String.Input("name", default="dialogue"),
            inputs.choice("format", OF_SUBTITLES, OF_SUBTITLES[0], optional=True),
        ],
        outputs=[],
        is_output_node=True,
    )

    validate_inputs = inputs.judged(name=check_name)

    @classmethod
    def execute(cls, srt: str, name: str, format: str = OF_SUBTITLES[0]) -> io.NodeOutput:
        if not srt.strip():
            raise ValueError("srt is empty: connect the srt output of Render Script")
        check_choice("format", format, OF_SUBTITLES)
        if format == "vtt":
            if not (cues := read_cues(srt)):
                raise ValueError(f"srt has {srt[:40]!r}, which is no caption: connect the srt output of Render Script")
            srt = write_cues(cues, "vtt")
        return io.NodeOutput(ui=ui.PreviewText(f"saved {write_numbered(name, format, srt).name}"))


class WordCaptions(io.ComfyNode):
    define_schema = schema(
        "MorphTTSWordCaptions",
        inputs=lambda: [
            WordsSocket.Input("words"),
            io.String.Input("name", default="captions"),
            inputs.choice("format", FORMATS, DEFAULTS.format),
            inputs.choice("unit", UNITS, DEFAULTS.unit),
            inputs.number("characters", DEFAULTS.most_chars, (1, MOST_CHARS)),
        ],
        outputs=[io.String.Output("captions")],
        is_output_node=True,
    )

    validate_inputs = inputs.judged(name=check_name)

    @classmethod
    def execute(cls, words: SpokenWords, name: str, format: str, unit: str, characters: int) -> io.NodeOutput:
        options = CaptionOptions(format, unit, characters)
        text = write_captions(check_words(words).lines, options)
        path = write_numbered(name, format, text)
        return io.NodeOutput(text, ui=ui.PreviewText(f"saved {path.name}\n\n{text}"))


def write_numbered(name: str, format: str, text: str) -> Path:
    """Write a text to the first unused NAME_00001.FORMAT of the output folder; return its path.

    Raises:
        ValueError: the name is none, or the text cannot be encoded as UTF-8; no file is created.
    """
    folder, stem = Path(folder_paths.get_output_directory()), check_name(name)
    data = check_encodable(text, "srt").encode()
    folder.mkdir(parents=True, exist_ok=True)
    paths = (confine(folder, f"{stem}_{number:05}.{format}") for number in count(1))
    path = next(path for path in paths if not os.path.lexists(path))
    write_new(path, data)
    return path


LOWEST_RATE, HIGHEST_RATE = 32, 320  # kbit/s
KEEP, REPLACE = EXISTING = ("keep (new number)", "replace changed")


class SaveSpeech(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSaveSpeech",
        advanced="bit_rate existing",
        inputs=lambda: [
            io.Audio.Input("audio"),
            io.String.Input("name", default="speech"),
            inputs.choice("format", TAGGED, "flac"),
            inputs.number("bit_rate", 96, (LOWEST_RATE, HIGHEST_RATE, 8)),
            io.Audio.Input("track", optional=True),
            inputs.choice("existing", EXISTING, KEEP, optional=True),
        ],
        outputs=[],
        is_output_node=True,
        is_input_list=True,
    )

    # Choices too: ``execute`` would refuse a wrong one only after the speech was generated.
    validate_inputs = inputs.judged(True, name=check_name, format=TAGGED, existing=EXISTING)

    @classmethod
    def execute(
        cls, audio: list[dict[str, Any]], track: list[dict[str, Any]] | None = None, **given: Sequence[Any]
    ) -> io.NodeOutput:
        inputs.check_filled("audio", audio)
        existing = check_choice("existing", given.get("existing", [KEEP])[0], EXISTING)
        kind, kbit_s = check_choice("format", given["format"][0], tuple(TAGGED)), given["bit_rate"][0]
        check_range("bit_rate", kbit_s, LOWEST_RATE, HIGHEST_RATE, "kbit/s")
        folder = confine(Path(folder_paths.get_output_directory()), check_name(given["name"][0]))
        recordings = recordings_of(audio) + recordings_of(track or [], is_track=True)
        for one in recordings:
            check_fits(one.waveform, one.sample_rate, kind)
        workflow = workflow_of(cls.hidden.prompt, cls.hidden.extra_pnginfo)
        files = {}
        for one in recordings:
            tags = {} if workflow is None else {**workflow, **one.tags()}
            files[one.file_name(kind)] = encode_tagged(one.waveform, one.sample_rate, kind, kbit_s, tags)
        write = replace_run if existing == REPLACE else write_run
        return io.NodeOutput(ui=listed(recordings, write(folder, files)))


def workflow_of(prompt: object, extra: Mapping[str, object] | None) -> dict[str, str] | None:
    """Return what ComfyUI's own nodes write into files; None if the user wants no metadata in files."""
    from comfy.cli_args import args

    if args.disable_metadata:
        return None
    known = {} if prompt is None else {"prompt": prompt}
    return {key: json.dumps(value) for key, value in {**known, **(extra or {})}.items()}


COLUMNS = {"text": io.String, "voice": io.String, "seed": io.Int, "seq_groups": io.Int}  # facts, as outputs


class SpeechFromFile(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSpeechFromFile",
        inputs=lambda: [inputs.choice("file", input_files(FILES) or [NO_FILE])],
        outputs=[kind.Output(name, is_output_list=True) for name, kind in COLUMNS.items()],
        is_output_node=True,
    )

    validate_inputs = inputs.judged(file=lambda name: chosen_file(name, FILES))

    # ComfyUI reads the file again if it was replaced.
    fingerprint_inputs = inputs.changing("file", lambda name: chosen_state(name, FILES))

    @classmethod
    def execute(cls, file: str) -> io.NodeOutput:
        facts = read_facts(chosen_file(file, FILES))
        columns = [[getattr(one, key) for one in facts] for key in COLUMNS]
        return io.NodeOutput(*columns, ui=ui.PreviewText("\n\n".join(map(in_words, facts))))


def read_facts(path: Path) -> tuple[Facts, ...]:
    """Return the facts in a file; ValueError if it cannot be read, or has none."""
    comment = read_comment(path)
    try:
        facts = from_json(comment)
    except ValueError as error:
        raise ValueError(f"what {path.name} says of its speech is damaged ({error}): choose another") from error
    if not facts:
        fix = "choose a file of Save Speech, not converted since"
        raise ValueError(f"{path.name} does not say what it was made from: {fix}")
    return facts


def in_words(facts: Facts) -> str:
    name = f"{facts.name}: " if facts.name else ""
    settings = [f"{key} {value}" for key, value in facts.settings.items() if value not in (None, "")]
    made = f"voice {facts.voice}, seed {facts.seed}, SEQ_GROUPS {facts.seq_groups}"
    return "\n".join([f"{name}{facts.text}", made, ", ".join(settings)])
