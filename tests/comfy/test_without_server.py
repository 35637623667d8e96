"""Nodes with ComfyUI's modules and no server: what a test cannot ask of a running one.

All run in one Python, one after another: to import ComfyUI takes it longer than they do.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice

ROOT = Path(__file__).resolve().parents[2]
# Runs the programs that are on stdin, with a file of extra model paths; the last line of stdout has for each what it
# printed, what it logged, and its failure.
RUNNER = """
import comfy.cli_args
comfy.cli_args.args.cpu = True
import json, logging, sys, traceback
from contextlib import redirect_stdout
from io import StringIO
from utils.extra_config import load_extra_path_config
load_extra_path_config(sys.argv[1])
import pack
pack.load()

told = {}
for name, (code, words) in json.load(sys.stdin).items():
    sys.argv, said, log, failure = [name, *words], StringIO(), StringIO(), ""
    logging.getLogger().addHandler(handler := logging.StreamHandler(log))
    with redirect_stdout(said):
        try:
            exec(compile(code, name, "exec"), {"__name__": name})
        except BaseException:
            failure = traceback.format_exc()
    logging.getLogger().removeHandler(handler)
    told[name] = [said.getvalue(), log.getvalue(), failure]
print(json.dumps(told))
"""
# As in a ComfyUI with inputs that grow. It comes first: before the nodes are imported.
GROWN = """
import json, types
from comfy_api.latest import io
class Input(io.Custom("COMFY_AUTOGROW_V3").Input):
    def __init__(self, id, template, tooltip):
        super().__init__(id, tooltip=tooltip)
        self.template = template
io.Autogrow = types.SimpleNamespace(Input=Input, TemplateNames=types.SimpleNamespace)
from qwen3_tts_morph.nodes.speaking.cast import WholeCast
from qwen3_tts_morph.morph.voice.voice import Voice
[names, voices, cast] = WholeCast.define_schema().inputs
first, second = (Voice("preset", "0b6", speaker=speaker) for speaker in ("first", "second"))
result = WholeCast.execute("ANNA\\nBEN", None, {"voice_1": first, "voice_2": second, "voice_3": None})
made = {name: voice.speaker for name, voice in result.args[0].items()}
print(json.dumps([voices.id, voices.template.names, voices.template.min, made]))
"""
# Other packs' nodes give empty lists, for a blank text, say.
EMPTY_LISTS = """
from qwen3_tts_morph.nodes.sound.audio import JoinAudio
from qwen3_tts_morph.nodes.speaking.speak import GenerateSpeech
from qwen3_tts_morph.nodes.saving.save import SaveSpeech

for name, run in {
    "text": lambda: GenerateSpeech.execute(model=[None], voice=[None], text=[], seed=[0]),
    "voice": lambda: GenerateSpeech.execute(model=[None], voice=[], text=["Hello."], seed=[0]),
    "audio": lambda: JoinAudio.execute([], [0.3], [0.0]),
    " audio": lambda: SaveSpeech.execute(audio=[], name=["speech"], format=["flac"], bit_rate=[96]),
}.items():
    try:
        run()
    except ValueError as error:
        assert str(error).startswith(f"{name.strip()} is an empty list: "), error
    else:
        raise AssertionError(name)
print("all refused")
"""
LOAD_MODEL = """
import sys
import folder_paths
from qwen3_tts_morph.morph.checkpoint.find import DEMO_VOICE, DEMO_VOICE_PATH, PUBLISHED
from qwen3_tts_morph.nodes.models import load
from qwen3_tts_morph.nodes.models.load import LoadModel

folder_paths.models_dir = sys.argv[1]
shown = lambda: LoadModel.define_schema().inputs[0].options
assert shown() == [DEMO_VOICE, "TTS/good", "checkpoints/mine", *PUBLISHED], shown()

valid = dict(checkpoint="TTS/good", precision="auto", attention="auto", engine="auto")
assert LoadModel.validate_inputs(**valid) is True
assert LoadModel.validate_inputs(**{name: None for name in valid}, weights=None) is True
assert str(DEMO_VOICE_PATH / "morph.json") in [one[0] for one in LoadModel.fingerprint_inputs(DEMO_VOICE)]

assert LoadModel.fingerprint_inputs(None) == [], "wired: what it gets is no change of a file"

def fail(roots):
    raise RuntimeError("a listing that fails")

load.find.list_checkpoints = fail
assert shown() == [DEMO_VOICE, *PUBLISHED]
"""
EXTRA_VOICES = """
from qwen3_tts_morph.nodes.voices.voices import LoadVoice

print(LoadVoice.define_schema().inputs[0].options)
"""
TINY_CONFIG = '{"model_type": "qwen3_tts"}'
ODD = {"deep": "[" * 100_000, "cut": '{"model_type": "qwen3_tts"', "number": "9" * 10_000}
MEMORY = """
import gc
import sys
from pathlib import Path
import comfy.model_management as management
import torch
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from lab.streams import render_lines
from qwen3_tts_morph.morph.frame.buffers import Buffers
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.nodes.models.values import ManagedModel, load_managed
from lab.random_checkpoint import write_checkpoint

options = LoadOptions(engine="graph", weights=sys.argv[2])
loaded = load_managed(write_checkpoint(Path(sys.argv[1]), "tiny", "custom_voice"), options)
state = loaded.synthesizer.model.module.state_dict().values()
assert loaded.patcher.model_size() == sum(tensor.nbytes for tensor in state)
assert any(tensor.dtype == torch.int8 for tensor in state) == (sys.argv[2] == "int8")

def speak():
    with ManagedModel([loaded]).use() as synthesizer:
        options = GenerateOptions(sampling=Sampling(max_new_tokens=9))
        voice = preset_voice(synthesizer.model, "ryan")
        spoken = render_lines(synthesizer, [Line("One.", voice), Line("Two.", voice)], options)
        return [one.waveform.tobytes() for one in spoken]

def caches():
    return [id(one) for one in gc.get_objects() if type(one) is Buffers]

first = speak()
kept = caches()
assert len(kept) == 1
assert speak() == first
assert caches() == kept, "rebuilt although the model was not evicted"
management.unload_all_models()
assert not caches(), "the caches were not freed with the model"
assert speak() == first
print("all is well")
"""


@dataclass(frozen=True)
class Told:
    """What a program printed, line by line, and what it logged; ``failure`` is its traceback."""

    lines: list[str]
    log: str
    failure: str


@dataclass(frozen=True)
class Folders:
    """Where programs run, ComfyUI's models, and more models on another disk."""

    work: Path
    models: Path
    disk: Path

    @property
    def extra_paths(self) -> Path:
        """ComfyUI's file that names what is on the other disk."""
        return self.disk / "paths.yaml"


Programs = dict[str, tuple[str, tuple[str, ...]]]  # name -> code, arguments


def run_programs(python: str, comfy_dir: Path, folders: Folders, programs: Programs) -> dict[str, Told]:
    """Run programs in one Python that finds ComfyUI's modules, in this order."""
    done = subprocess.run(
        [python, "-c", RUNNER, str(folders.extra_paths)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(comfy_dir), str(ROOT)])},
        cwd=folders.work,
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: Told(said.splitlines(), log, failure) for name, (said, log, failure) in told.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """A checkpoint among broken ones, and a checkpoint and a voice on another disk."""
    made = Folders(*map(tmp_path_factory.mktemp, ("work", "models", "disk")))
    configs = {made.models / "TTS" / name: config for name, config in ODD.items()}
    configs |= dict.fromkeys((made.models / "TTS" / "good", made.disk / "checkpoints" / "mine"), TINY_CONFIG)
    for path, config in configs.items():
        path.mkdir(parents=True)
        (path / "config.json").write_text(config, encoding="utf-8")
    voices = made.disk / "voices"
    voices.mkdir()
    save_voice(Voice("preset", "0b6", speaker="ryan"), voices / "Hers.safetensors")
    (voices / "Odd.safetensors").touch()
    made.extra_paths.write_text(
        f"disk:\n  base_path: {made.disk}\n  TTS: checkpoints\n  qwen3-tts-voices: voices\n", encoding="utf-8"
    )
    return made


@pytest.fixture(scope="module")
def told(comfy_dir: Path, comfy_python: str, folders: Folders) -> dict[str, Told]:
    programs: Programs = {
        "grown": (GROWN, ()),
        "empty lists": (EMPTY_LISTS, ()),
        "load model": (LOAD_MODEL, (str(folders.models),)),
        "extra voices": (EXTRA_VOICES, ()),
        "memory": (MEMORY, (str(folders.models / "tiny"), "full")),
    }
    return run_programs(comfy_python, comfy_dir, folders, programs)


def test_where_inputs_grow_whole_cast_has_them_and_reads_them(told: dict[str, Told]) -> None:
    assert not told["grown"].failure, told["grown"].failure
    group, names, fewest, cast = json.loads(told["grown"].lines[-1])
    assert (group, names[0], names[-1], len(names), fewest) == ("voices", "voice_1", "voice_64", 64, 1)
    assert cast == {"ANNA": "first", "BEN": "second"}


def test_an_empty_list_is_refused_by_the_name_of_the_input(told: dict[str, Told], folders: Folders) -> None:
    assert not told["empty lists"].failure, told["empty lists"].failure
    assert told["empty lists"].lines == ["all refused"]
    assert list(folders.work.iterdir()) == [], "a file was written"


def test_the_schema_survives_broken_folders_and_has_extra_ones(told: dict[str, Told]) -> None:
    done = told["load model"]
    assert not done.failure, done.failure
    assert "a listing that fails" in done.log
    assert all(f"{name}' is left out" in done.log for name in ODD)


def test_voices_of_extra_model_paths_are_offered(told: dict[str, Told]) -> None:
    assert not told["extra voices"].failure, told["extra voices"].failure
    assert told["extra voices"].lines == ["['Hers']"]


def test_the_engines_caches_stay_between_runs_and_are_freed_with_the_model(told: dict[str, Told]) -> None:
    assert not told["memory"].failure, told["memory"].failure
    assert told["memory"].lines[-1] == "all is well"


@pytest.mark.slow
def test_with_int8_weights_too(comfy_dir: Path, comfy_python: str, folders: Folders, tmp_path: Path) -> None:
    programs: Programs = {"memory": (MEMORY, (str(tmp_path / "checkpoint"), "int8"))}
    [done] = run_programs(comfy_python, comfy_dir, folders, programs).values()
    assert not done.failure and done.lines[-1] == "all is well", done.failure
