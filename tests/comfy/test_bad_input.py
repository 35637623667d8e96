"""In a real ComfyUI, every bad input gets its error message, and the next run works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy import graphs
from tests.comfy.graphs import Graph, cloned_voice, load_model, node, shown, speech
from tests.morph.adapters import write_adapter

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

NAMES = ["", "../up", "a/b", "a\\b", "C:x", "CON", "com1.txt", ".hidden", "dot.", "nul\0l", "x" * 81]
DESIGN = node("MorphTTSDesignVoice", model=["model", 0], description="a calm man")
SMOOTH = {
    "low_pass": True, "order": 2, "cutoff": 11000.0, "zero_phase": False, "normalize": "peak",
    "peak_db": -3.0, "lufs": -16.0, "trim_silence": False,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def user_files(base_dir: Path, model_folders: Path) -> None:
    graphs.place_checkpoints(model_folders)
    inputs = base_dir / "input"
    graphs.place_recordings(inputs)
    noise = 0.1 * np.random.default_rng(0).normal(size=48000).astype(np.float32)
    damaged = np.where(np.arange(noise.size) == 100, np.float32(np.nan), noise)
    soundfile.write(inputs / "silent.wav", np.zeros(48000), 24000)
    soundfile.write(inputs / "short.wav", noise[:12000], 24000)
    soundfile.write(inputs / "nan.wav", damaged, 24000, subtype="FLOAT")
    soundfile.write(inputs / "long.wav", np.tile(noise, 20).reshape(-1, 2), 12000)
    voices = base_dir / "models" / "qwen3-tts-voices"
    voices.mkdir(parents=True, exist_ok=True)
    (voices / "damaged.safetensors").write_bytes(b"junk")
    write_adapter(base_dir / "models" / "loras" / "literal", model_folders / "Qwen3-TTS-12Hz-0.6B-Base")
    broken = base_dir / "models" / "TTS" / "broken"
    shutil.copytree(model_folders / "Qwen3-TTS-12Hz-0.6B-Base", broken)
    (broken / "merges.txt").unlink()


def changed(graph: Graph, node_id: str, **inputs: Any) -> Graph:
    graph[node_id]["inputs"] |= inputs
    return graph


def recorded(name: str) -> Graph:
    return changed(speech(), "recording", audio=name)


def scripted(**inputs: Any) -> Graph:
    render = {
        "model": ["model", 0], "cast": ["cast", 0], "script": "ANNA: Hello.", "seq_groups": 5, "seed": 0,
        "batch_size": 8, "language": "auto", "gap": 0.3,
    }  # fmt: skip
    return cloned_voice() | {
        "cast": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "script": node("MorphTTSRenderScript", **(render | inputs)),
        "file": node("SaveAudio", audio=["script", 1], filename_prefix="bad"),
    }


def smoothed(name: str, **inputs: Any) -> Graph:
    return {
        "recording": node("LoadAudio", audio=name),
        "smooth": node("MorphTTSSmoothNormalize", audio=["recording", 0], **(SMOOTH | inputs)),
        "file": node("SaveAudio", audio=["smooth", 0], filename_prefix="bad"),
    }


def trimmed(**inputs: float) -> Graph:
    return {
        "recording": node("LoadAudio", audio=graphs.RECORDING),
        "trim": node("MorphTTSTrimRecording", audio=["recording", 0], **inputs),
    }


def saved(name: str) -> Graph:
    save = node("MorphTTSSaveVoice", voice=["voice", 0], name=name, overwrite=False)
    return cloned_voice() | {"save": save}


REFUSED = {
    "empty text": (speech(text=""), "text is empty: type what is to be spoken"),
    "no text": (speech(text=None), "Required input is missing: text"),  # ComfyUI would speak "None"
    "white text": (speech(text=" \n\t"), "text is empty: type what is to be spoken"),
    "nothing to speak": (speech(text="... !!!"), "has no letter and no digit to speak"),
    "a tag of scripts": (speech(text="Hi [seed 7] there."), "text contains [seed 7], a script tag"),
    "a wrong pause": (speech(text="Hi [pause x] there."), "[pause x] is not a pause: give 0 to 60 seconds"),
    "only a pause": (speech(text="[pause 1]"), "text is empty: type what is to be spoken"),
    "a pause of words": (scripted(script="ANNA: Hi.\n[pause abc]"), "line 2: [pause abc] is not a pause"),
    "groups too many": (speech(seq_groups=16), "Value 16 bigger than max of 15"),
    "groups too few": (speech(seq_groups=0), "Value 0 smaller than min of 1"),
    "empty description": (
        speech() | {"voice": node("MorphTTSDesignVoice", model=["model", 0], description=" ")},
        "description is empty",
    ),
    "empty script": (scripted(script=" "), "script is empty: write lines such as 'NAME: text'"),
    "no voice of that name": (
        speech() | {"voice": node("MorphTTSLoadVoice", name="../../secret")},
        "voice '../../secret' is not in the library",
    ),
    "damaged voice": (
        speech() | {"voice": node("MorphTTSLoadVoice", name="damaged")},
        "voice file damaged.safetensors is damaged",
    ),
    "ICL without words": (
        changed(speech(), "voice", mode="ICL", transcript=" "),
        "transcript is empty: ICL needs the words of the reference",
    ),
    "no such mode": (changed(speech(), "voice", mode="quick"), "mode is 'quick': choose one of x-vector, ICL"),
    "no such checkpoint": (
        changed(speech(), "model", checkpoint="qwen-tts/gone"),
        "checkpoint 'qwen-tts/gone' no longer exists",
    ),
    "fp16 on the CPU": (changed(speech(), "model", precision="fp16"), "precision is fp16 and the device is the CPU"),
    "no flash-attn": (changed(speech(), "model", attention="flash_attention_2"), "choose auto or sdpa"),
    "no such precision": (changed(speech(), "model", precision="fp8"), "precision is 'fp8': choose one of auto"),
    "a list, which is a link": (changed(speech(), "model", precision=["bf16"]), "must be a length-2 list"),
    "no such attention": (changed(speech(), "model", attention="sage"), "attention is 'sage': choose one of auto"),
    "no such engine": (changed(speech(), "model", engine="x"), "engine is 'x': choose one of auto"),
    "no such weights": (changed(speech(), "model", weights="int4"), "weights is 'int4': choose one of full"),
    "a number for a checkpoint": (changed(speech(), "model", checkpoint=5), "checkpoint is 5: choose one from the"),
    "a part without length": (trimmed(start=3.0, end=2.0), "start 3 s and end 2 s leave 0.00 s: choose at least 1 s"),
    "character's name": (changed(scripted(), "cast", name="A: B"), "or a line break, which scripts reserve"),
}  # fmt: skip


# Nodes in which one input decides whether another is right: ComfyUI repeats their sentence under each.
SEVERAL_CHECKED = (
    *("MorphTTSLoadModel", "MorphTTSCloneVoice", "MorphTTSTrimRecording"),
    *("MorphTTSSaveSpeech", "MorphTTSPronunciation"),
)


@pytest.mark.parametrize("case", REFUSED)
def test_input_known_to_be_bad_is_rejected_before_the_run(server: ComfyServer, case: str) -> None:
    from tests.comfy.server import ComfyError

    graph, sentence = REFUSED[case]
    with pytest.raises(ComfyError) as refused:
        server.run(graph)
    assert sentence in str(refused.value)
    for broken in refused.value.body["node_errors"].values():
        assert by_name(broken["errors"]) == 1, "the page tells by the name whose sentence it is"
        repeats = broken["class_type"] in SEVERAL_CHECKED
        assert repeats or len(broken["errors"]) == 1, "a sentence stands once, under its own input"


def by_name(errors: list[dict[str, Any]]) -> int:
    """Return how many errors are about the inputs under whose names they are: the page shows these (failed.js)."""
    named = [(one["extra_info"]["input_name"], one["details"].casefold()) for one in errors]
    return sum(details == name or re.match(rf"{name} - {name}\b", details) is not None for name, details in named)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_could_leave_the_library_or_fail_on_another_system_is_rejected(
    server: ComfyServer, base_dir: Path, name: str
) -> None:
    from tests.comfy.server import ComfyError

    before = sorted(base_dir.rglob("*.safetensors*"))
    with pytest.raises(ComfyError, match="name"):
        server.run(saved(name))
    subtitles = node("MorphTTSSaveSubtitles", srt=["script", 2], name=name)
    with pytest.raises(ComfyError, match="name"):
        server.run({key: value for key, value in scripted().items() if key != "file"} | {"save": subtitles})
    assert sorted(base_dir.rglob("*.safetensors*")) == before


FAILING = {
    "silent": (recorded("silent.wav"), "reference is silent"),
    "empty": (
        speech() | {"recording": node("EmptyAudio", duration=0.0, sample_rate=24000, channels=2)},
        "audio has shape (1, 2, 0)",
    ),
    "another kind": (
        speech(model=["other", 0]) | {"other": load_model("0.6B-CustomVoice")},
        "needs a Base checkpoint",
    ),
    "beyond the context": (speech(text="word " * 9000, split_chars=0), "split it into shorter lines"),
    "missing files": (changed(speech(), "model", checkpoint="TTS/broken"), "checkpoint broken lacks merges.txt"),
    "smooth NaN": (smoothed("nan.wav"), "NaN or infinity"),
    "unknown character": (scripted(script="CARL: Hi."), "'CARL' is not in the cast: choose from "),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILING)
def test_a_failed_run_says_why(server: ComfyServer, case: str) -> None:
    graph, sentence = FAILING[case]
    result = server.run(graph)
    assert result.status == "execution_error"
    assert result.error["exception_type"] == "ValueError", "the message must not start with a module path"
    assert sentence in result.error["exception_message"]
    assert result.files == []


def test_after_failed_runs_the_next_one_works(server: ComfyServer) -> None:
    for case in ("missing files", "beyond the context"):  # while a model is loaded, and while one speaks
        assert server.run(FAILING[case][0]).status == "execution_error"
    result = server.run(speech(seed=100))
    assert result.ok, result.error


def designed(**inputs: Any) -> Graph:
    return {
        "model": load_model("1.7B-VoiceDesign"),
        "voice": changed({"voice": DESIGN}, "voice", **inputs)["voice"],
    }


def preset(**inputs: Any) -> Graph:
    """Return a preset voice that is blended with itself (``blend``), saved (``save``) and joins a cast (``more``)."""
    voice = {"model": ["model", 0], "speaker": "ryan"}
    return {
        "model": load_model("0.6B-CustomVoice"),
        "voice": node("MorphTTSPresetVoice", **(voice | inputs)),
        "blend": node(
            "MorphTTSBlendVoices",
            voice_a=["voice", 0],
            voice_b=["voice", 0],
            weight_a=1.0,
            weight_b=1.0,
            model=["model", 0],
        ),
        "save": node("MorphTTSSaveVoice", voice=["blend", 0], name="literal", overwrite=True),
        "shift": node(
            "MorphTTSShiftVoice",
            voice=["voice", 0],
            toward=["voice", 0],
            away=["blend", 0],
            strength=1.0,
            model=["model", 0],
        ),
        "one": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "more": node("MorphTTSCast", name="BEN", voice=["voice", 0], cast=["one", 0]),
    }


def dubbed(**inputs: Any) -> Graph:
    given = {
        "model": ["model", 0], "captions": "1\n00:00:00,000 --> 00:00:01,000\nHi\n", "seq_groups": 5, "seed": 0,
        "batch_size": 8, "language": "auto", "max_speed": 1.25, "overrun": 0.5, "voice": ["voice", 0],
    }  # fmt: skip
    return cloned_voice() | {"dub": node("MorphTTSDub", **(given | inputs))}


def swept(**inputs: Any) -> Graph:
    given = {
        "model": ["model", 0], "voice": ["voice", 0], "text": "Hello.", "language": "auto", "seq_groups": "1, 5",
        "seed": 0,
    }  # fmt: skip
    return cloned_voice() | {"sweep": node("MorphTTSSweep", **(given | inputs))}


def kept(**inputs: Any) -> Graph:
    given = {"audio": ["recording", 0], "name": "literal", "format": "flac", "bit_rate": 96}
    return {
        "recording": node("LoadAudio", audio=graphs.RECORDING),
        "save": node("MorphTTSSaveSpeech", **(given | inputs)),
    }


def adapted() -> Graph:
    return cloned_voice() | {
        "lora": node("MorphTTSLoadLora", model=["model", 0], adapter="loras/literal", strength=1.0)
    }


def subtitled(**inputs: Any) -> Graph:
    text = node("PrimitiveStringMultiline", value="1\n00:00:00,000 --> 00:00:01,000\nHi\n")
    return {
        "text": text,
        "save": node("MorphTTSSaveSubtitles", **({"srt": ["text", 0], "name": "literal"} | inputs)),
    }


# A graph whose inputs are written by a program, the node, and its inputs that a list or a link belongs in.
WRITTEN = {
    "Generate Speech": (
        speech, "speech",
        ("model", "voice", "language", "normalize_text", "word_check", "pronunciation"),
    ),
    "Render Script": (scripted, "script", ("model", "cast", "language", "normalize_text", "word_check")),
    "Dub": (
        dubbed, "dub",
        ("model", "voice", "cast", "language", "normalize_text", "word_check", "overlap"),
    ),
    "Sweep": (swept, "sweep", ("model", "voice", "language", "sampling")),
    "Clone Voice": (speech, "voice", ("model", "audio", "mode")),
    "Preset Voice": (preset, "voice", ("model", "speaker")),
    "Design Voice": (designed, "voice", ("model",)),
    "Blend Voices": (preset, "blend", ("voice_a", "voice_b", "voice_c", "model")),
    "Shift Voice": (preset, "shift", ("voice", "toward", "away", "away_3", "model")),
    "Save Voice": (preset, "save", ("voice",)),
    "Cast": (preset, "more", ("voice", "cast", "model")),
    "Load LoRA": (adapted, "lora", ("model", "adapter")),
    "Load Model": (speech, "model", ("checkpoint", "precision", "engine", "device", "more_models")),
    "Save Speech": (kept, "save", ("audio", "format", "existing")),
    "Save Subtitles": (subtitled, "save", ("format",)),
    "Load Voice": (lambda: speech() | {"voice": node("MorphTTSLoadVoice")}, "voice", ("name",)),
    "Script From File": (lambda: {"read": node("MorphTTSScriptFromFile")}, "read", ("file",)),
    "Pronunciation": (lambda: {"read": node("MorphTTSPronunciation", words="")}, "read", ("file",)),
    "Speech From File": (lambda: {"read": node("MorphTTSSpeechFromFile")}, "read", ("file",)),
}  # fmt: skip
MAY_BE_NOTHING = {
    "word_check", "pronunciation", "sampling", "voice_c", "away_3", "more_models", "Blend Voices.model",
    "Shift Voice.model", "Clone Voice.audio", "Preset Voice.model", "Generate Speech.model",
    "Generate Speech.voice", "Render Script.model", "Render Script.cast", "Dub.model", "Dub.voice", "Dub.cast",
    "Cast.cast", "Cast.model",
}  # fmt: skip


@pytest.mark.parametrize(("case", "key"), [(case, key) for case, row in WRITTEN.items() for key in row[2]])
def test_a_literal_where_a_link_or_a_choice_belongs_gets_a_sentence(server, case, key) -> None:
    """A program may send any value; the page does not."""
    make, node_id, _ = WRITTEN[case]
    nothing = [] if MAY_BE_NOTHING & {key, f"{case}.{key}"} else [None]
    for value in [5, {"a": 1}, *nothing]:
        graph = changed(make(), node_id, **{key: value})
        if case not in ("Save Speech", "Save Subtitles"):  # these have no output
            graph["end"] = node("PreviewAny", source=[node_id, 0])
        assert re.match(rf"{key}( is |: )|no {key}: ", said_of(server, graph)), value


def said_of(server: ComfyServer, graph: Graph) -> str:
    """Return the sentence with which a graph is refused, or fails with a ValueError."""
    from tests.comfy.server import ComfyError

    try:
        result = server.run(graph)
    except ComfyError as refused:
        [errors] = [one["errors"] for one in refused.body["node_errors"].values()]
        if {one["type"] for one in errors} == {"value_not_in_list"}:  # newer ComfyUIs check choices themselves
            return f"{errors[0]['extra_info']['input_name']}: {errors[0]['details']}"
        assert {one["type"] for one in errors} == {"custom_validation_failed"}
        return errors[0]["details"].partition(" - ")[2]
    assert result.error and result.error["exception_type"] == "ValueError", result.error
    return result.error["exception_message"]


def test_the_default_cutoff_leaves_a_recording_without_such_frequencies_unfiltered(server) -> None:
    """``long.wav`` has 12000 samples per second."""
    filtered, whole = (server.run(smoothed("long.wav", low_pass=switch, normalize="off")) for switch in (True, False))
    assert filtered.ok and whole.ok, filtered.error
    with_filter, without = (soundfile.read(one.files[0].path)[0] for one in (filtered, whole))
    assert np.array_equal(with_filter, without)
    assert shown(filtered, "smooth") == (
        "low-pass left out: audio of 12000 samples per second ends at 6000 Hz, and the default cutoff is 11000 Hz"
    )
    assert "smooth" not in whole.outputs
    for cutoff in (6000.0, 11000.1):
        chosen = server.run(smoothed("long.wav", cutoff=cutoff))
        assert chosen.error["exception_message"].startswith(f"cutoff is {cutoff:g} Hz, but audio of 12000")


def test_warnings_about_a_recording_are_shown_on_the_node(server: ComfyServer) -> None:
    result = server.run(recorded("long.wav"))
    assert result.ok, result.error
    cloned, cut, steady = shown(result, "voice").splitlines()
    assert cloned == "x-vector voice cloned"
    assert cut == "reference is 40.0 s long: only its first 30 s are used"
    assert steady.endswith("like noise or a tone: is it speech?")
    assert cut in server.log()
    assert shown(server.run(speech()), "voice") == "x-vector voice cloned"
