"""Save Speech and Speech From File in a real ComfyUI: files, what they say, and a line made again from its file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy import graphs
from tests.comfy.examples import BOTH_PAGES, CLASSIC, NODES_2, PAGES
from tests.comfy.graphs import Graph, node, shown, speech

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer, Result

pytestmark = pytest.mark.usefixtures("recordings")

SCRIPT = "ANNA: Good morning!\n[seed 7] ANNA: Then let us walk: now."


def save(audio: list[Any], name: str, kind: str = "flac", **changes: Any) -> dict[str, Any]:
    return node("MorphTTSSaveSpeech", audio=audio, name=name, format=kind, bit_rate=96, **changes)


def scripted(name: str, kind: str = "flac", **changes: Any) -> Graph:
    """Return a script of two lines, its lines and track saved by Save Speech, and its lines by Save Audio."""
    return graphs.cloned_voice() | {
        "sampling": graphs.sampling(),
        "cast": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "script": graphs.render_script(SCRIPT, **changes),
        "file": node("SaveAudio", audio=["script", 0], filename_prefix="line"),
        "save": save(["script", 0], name, kind, track=["script", 1]),
    }


def saved(result: Result, node_id: str = "save") -> list[Path]:
    """Return the files that a Save Speech node wrote, as ComfyUI lists them."""
    assert result.ok, result.error
    return [file.path for file in result.files if file.node_id == node_id and file.kind == "audio"]


def test_a_script_becomes_one_file_per_line_and_a_track(server: ComfyServer, base_dir: Path) -> None:
    result = server.run(scripted("scene 1"))
    files = saved(result)
    assert [path.relative_to(base_dir).as_posix() for path in files] == [
        "output/scene 1/00001_001_ANNA_Good-morning.flac",
        "output/scene 1/00001_002_ANNA_Then-let-us-walk-now.flac",
        "output/scene 1/00001_track.flac",
    ]
    assert shown(result, "save") == "saved 3 files in output/scene 1"
    clips = result.outputs["save"]["morph_clips"]
    assert [(one["name"], one["text"], one["type"]) for one in clips] == [
        ("ANNA", "Good morning!", "output"),
        ("ANNA", "Then let us walk: now.", "output"),
        ("track", "", "output"),
    ]
    for path, samples in zip(files, graphs.samples(result), strict=False):
        assert np.array_equal(soundfile.read(path, always_2d=True)[0], samples)
    assert all(server.download(file) == file.path.read_bytes() for file in result.files)
    again = saved(server.run(scripted("scene 1", seed=1)))
    assert [path.name[:10] for path in again] == ["00002_001_", "00002_002_", "00002_trac"]
    assert all(path.is_file() for path in files)


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "opus"])
def test_a_line_is_made_again_from_its_file(server: ComfyServer, base_dir: Path, kind: str) -> None:
    made = server.run(speech(text="Größe: “yes”, he said.", seed=2**64 - 2, seq_groups=3) | {
        "save": save(["speech", 0], f"again {kind}", kind)
    })  # fmt: skip
    [path] = saved(made)
    shutil.copy(path, base_dir / "input" / f"again.{kind}")
    facts = {name: ["facts", output] for output, name in enumerate(("text", "voice", "seed", "seq_groups"))}
    voice = facts.pop("voice")
    graph = speech(**facts) | {
        "facts": node("MorphTTSSpeechFromFile", file=f"again.{kind}"),
        "name": node("PreviewAny", source=voice),
    }
    again = server.run(graph)
    assert again.ok, again.error
    [first], [second] = graphs.samples(made), graphs.samples(again)
    assert np.array_equal(first, second)
    assert shown(again, "name") == "cloned voice"
    said = shown(again, "facts")
    assert said.startswith("Größe: “yes”, he said.\nvoice cloned voice, seed 18446744073709551614, SEQ_GROUPS 3\n")
    assert "checkpoint Qwen3-TTS-12Hz-0.6B-Base" in said and "language english" in said


def test_a_tracks_file_gives_all_its_lines(server: ComfyServer) -> None:
    track = saved(server.run(scripted("scene 2", "opus")))[-1]
    graph = {
        "facts": node("MorphTTSSpeechFromFile", file=f"scene 2/{track.name} [output]"),
        "texts": node("PreviewAny", source=["facts", 0]),
    }
    result = server.run(graph)
    assert result.ok, result.error
    said = shown(result, "facts")
    assert said.startswith("ANNA: Good morning!\nvoice cloned voice, seed ") and "\n\nANNA: Then let us walk" in said
    assert "seed 7, SEQ_GROUPS 5" in said


def test_files_hold_the_workflow_as_comfyui_s_own_do(server: ComfyServer) -> None:
    graph = scripted("with workflow")
    result = server.run(graph, extra_data={"extra_pnginfo": {"workflow": {"nodes": ["mine"]}}})
    tags = read_tags(saved(result)[0])
    assert json.loads(tags["workflow"]) == {"nodes": ["mine"]}
    prompt = json.loads(tags["prompt"])  # ComfyUI adds fingerprints to it
    assert {key: one["inputs"] for key, one in prompt.items()} == {key: one["inputs"] for key, one in graph.items()}
    assert tags["title"] == "Good morning!" and tags["artist"] == "ANNA"


def read_tags(path: Path) -> dict[str, str]:
    import av

    with av.open(str(path)) as container:
        return {key.lower(): text for key, text in container.metadata.items()}


def test_other_sound_and_processed_speech_are_saved_too(server: ComfyServer) -> None:
    smooth = {
        "low_pass": True, "order": 2, "cutoff": 11000.0, "zero_phase": False, "normalize": "peak",
        "peak_db": -3.0, "lufs": -16.0, "trim_silence": False,
    }  # fmt: skip
    graph = speech() | {
        "plain": save(["recording", 0], "plain", "wav"),
        "smooth": node("MorphTTSSmoothNormalize", audio=["speech", 0], **smooth),
        "processed": save(["smooth", 0], "processed", "flac"),
    }
    result = server.run(graph)
    [plain], [processed] = saved(result, "plain"), saved(result, "processed")
    assert plain.name == "00001_001.wav" and "comment" not in read_tags(plain)
    assert processed.name == "00001_001_He-was-not-an-ill-disposed-young-man.flac"
    assert json.loads(read_tags(processed)["comment"])["qwen3_tts_morph"][0]["seed"] == 1
    refused = server.run({"facts": node("MorphTTSSpeechFromFile", file="plain/00001_001.wav [output]")})
    assert "00001_001.wav does not say what it was made from" in refused.error["exception_message"]


REFUSED = {
    "a name with a path": ({"name": "../up"}, "name '../up' contains '/'"),
    "no name": ({"name": " "}, "name is empty"),
    "no such choice": ({"existing": "delete"}, "delete"),
    "no such format": ({"kind": "ogg"}, "format is 'ogg': choose one of flac, wav, mp3, opus"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_bad_settings_are_refused_before_any_work(server, changes, reason) -> None:
    from tests.comfy.server import ComfyError

    graph = graphs.cloned_voice() | {"save": save(["recording", 0], **({"name": "x"} | changes))}
    with pytest.raises(ComfyError) as error:
        server.run(graph)
    assert reason in json.dumps(error.value.body, ensure_ascii=False)


@pytest.mark.parametrize(
    "name",
    ["missing.flac", "../../secret.flac", "/etc/hostname", "x\0.flac", "y" * 5000, "", " [output]", ".."],
)
def test_only_files_of_comfyui_s_own_folders_are_read(server: ComfyServer, name: str) -> None:
    from tests.comfy.server import ComfyError

    with pytest.raises(ComfyError, match="is not in ComfyUI's"):
        server.run({"facts": node("MorphTTSSpeechFromFile", file=name)})


@pytest.fixture(params=BOTH_PAGES)
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Any:
    server, nodes_2 = PAGES[request.param]
    with browser.open(request.getfixturevalue(server), nodes_2=nodes_2) as opened:
        yield opened


ADD = """([kind, values]) => {
  const node = window.LiteGraph.createNode(kind)
  window.app.graph.add(node)
  for (const [name, value] of Object.entries(values)) node.widgets.find((one) => one.name === name).value = value
  node.pos = [100, 100]
  window.app.canvas.ds.scale = 1
  window.app.canvas.ds.offset = [0, 0]
  return node.widgets.filter((one) => !one.hidden).map((one) => one.name)
}"""
CONNECT = """([from, to]) => {
  const find = (kind) => window.app.graph.nodes.find((one) => one.type === kind)
  find(to).pos = [700, 100]
  find(from).connect(0, find(to), 'audio')
}"""


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_saved_files_play_in_the_page(page: ComfyPage, request: pytest.FixtureRequest) -> None:
    graphs.place_recordings(request.getfixturevalue("base_dir") / "input")
    graphs.place_recordings(page_base(page, request) / "input")
    page.page.evaluate("() => window.app.graph.clear()")
    page.page.evaluate(ADD, ["LoadAudio", {"audio": graphs.RECORDING}])
    # What another page of the same server has saved is cached, and saved to no file again.
    name = f"from {request.node.callspec.params['page']}"
    widgets = page.page.evaluate(ADD, ["MorphTTSSaveSpeech", {"name": name}])
    assert [one for one in widgets if one != "morph_more"] == ["name", "format", "bit_rate", "existing"]
    page.page.evaluate(CONNECT, ["LoadAudio", "MorphTTSSaveSpeech"])
    kind, data = page.run()
    assert kind == "execution_success", data
    rows = page.page.locator(".morph-clip")
    rows.first.wait_for(state="attached")
    link = rows.locator("a").first.get_attribute("href")
    assert rows.count() == 1 and "type=output" in link and "00001_001.flac" in link
    assert page.page.evaluate("async (url) => (await fetch(url)).status", link) == 200
    assert page.problems() == []


def page_base(page: ComfyPage, request: pytest.FixtureRequest) -> Path:
    """Return the base folder of the server that a page belongs to."""
    name = PAGES[request.node.callspec.params["page"]][0]
    return request.getfixturevalue(name).base_dir


@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_a_file_is_uploaded_by_the_button(page: ComfyPage, tmp_path: Path) -> None:
    own = tmp_path / "mine.flac"
    shutil.copy(graphs.DATA / graphs.RECORDING, own)
    page.page.evaluate("() => window.app.graph.clear()")
    widgets = page.page.evaluate(ADD, ["MorphTTSSpeechFromFile", {}])
    assert widgets[:2] == ["file", "upload"]
    with page.page.expect_file_chooser() as chooser:
        page.page.evaluate("() => window.app.graph.nodes[0].widgets.find((one) => one.name === 'upload').callback()")
    with page.page.expect_response(lambda answer: "/upload/image" in answer.url):
        chooser.value.set_files(own)
    value = "() => window.app.graph.nodes[0].widgets.find((one) => one.name === 'file').value"
    page.page.wait_for_function(f"() => ({value})()?.startsWith('mine')")
    saved_values = "async () => (await window.app.graphToPrompt()).workflow.nodes[0].widgets_values"
    assert page.page.evaluate(saved_values)[0].startswith("mine")
    assert page.problems() == []
