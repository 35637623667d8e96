"""Every example workflow opens on all supported frontends, and runs end to end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pysubs2
import pytest
from qwen3_tts_morph.morph.voice.file import load_voice

from tests.comfy.cards import take_picture
from tests.comfy.examples import (
    FOCUS,
    NAMES,
    PAGES,
    PICTURE_SETTINGS,
    RECORDINGS,
    TRAINED,
    after,
    of_kind,
    only,
    place_own_files,
    read_workflow,
    run,
)
from tests.comfy.graphs import SAMPLES_PER_FRAME, WORDS, Graph, samples, shown

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer, Result

pytestmark = pytest.mark.usefixtures("own_files")

RATE = 24000
WIDGETS = ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO")
LINE_GAP = 0.3  # seconds; the default of Render Script
CAPTION_MARGIN = 0.04  # seconds between a caption's start or end and the audible part of its line
DIALOGUE = "Dialogue to files, track and subtitles"
LIBRARY = "Save, load and blend voices"
PICTURE_SIZE = {"width": 1280, "height": 720}


@dataclass(frozen=True)
class Opened:
    """A page on which one workflow after another is opened."""

    label: str
    page: ComfyPage
    server: ComfyServer


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[Opened]:
    name, nodes_2 = PAGES[request.param]
    server: ComfyServer = request.getfixturevalue(name)
    place_own_files(server.base_dir / "input")
    for setting, value in PICTURE_SETTINGS.items():
        server.set_page_setting(setting, value)
    with browser.open(server, nodes_2=nodes_2, **(PICTURE_SIZE if nodes_2 else {})) as page:
        if nodes_2:
            page.page.evaluate(FOCUS)
        yield Opened(request.param, page, server)


def saved_values(node: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(widget_names(node, info), node["widgets_values"], strict=True))


def widget_names(node: dict[str, Any], info: dict[str, Any]) -> list[str]:
    """Return the names of a node's values in their order; a seed is followed by its control_after_generate value."""
    inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
    sockets = {socket["name"] for socket in node["inputs"] if "widget" not in socket}
    names = []
    for key, (kind, options) in inputs.items():
        if key not in sockets and (isinstance(kind, list) or kind in WIDGETS):
            names += [key, "after"] if options.get("control_after_generate") else [key]
    return names


# By default, open every workflow with Nodes 2.0, and the first one on the oldest page. On the classic canvas of today's
# page test_page.py opens one.
FIRST = ("0.3.75", NAMES[0])
OPENED = [
    pytest.param(page, name, marks=() if page == "Nodes 2.0" or (page, name) == FIRST else pytest.mark.slow)
    for page in PAGES
    for name in NAMES
]


# The scope is that of ``opened``: else pytest opens a page for every name.
@pytest.mark.parametrize(("opened", "name"), OPENED, indirect=["opened"], scope="module")
def test_it_opens_completely_and_with_its_values(opened: Opened, name: str, screenshots: Path) -> None:
    workflow, page = read_workflow(name), opened.page
    page.errors.clear()
    report = page.load(workflow)
    if opened.label == "Nodes 2.0":
        # These are the preview pictures: copy them to workflows/ when a graph has changed.
        take_picture(page, name, screenshots / f"{name}.jpg")
    else:
        page.fit()
        page.screenshot(screenshots / f"{name} ({opened.label}).png")
    assert report["missing"] == [] and page.problems() == []
    assert len(report["nodes"]) == len(workflow["nodes"]) and report["links"] == len(workflow["links"])
    page.wait_for_vue_nodes(len(workflow["nodes"]) if opened.label == "Nodes 2.0" else 0)
    object_info = opened.server.object_info()
    muted = {node["id"] for node in workflow["nodes"] if node["mode"] != 0}
    live = {link[0] for link in workflow["links"] if link[1] not in muted}
    for node in workflow["nodes"]:
        if node["type"].startswith("MorphTTS") and node["mode"] == 0:
            linked = {socket["name"] for socket in node["inputs"] if socket["link"] in live}
            saved = saved_values(node, object_info[node["type"]])
            values = {key: value for key, value in saved.items() if key not in linked}
            assert values.pop("after", "fixed") == "fixed"
            inputs = report["api"][str(node["id"])]["inputs"]
            assert {key: inputs[key] for key in values} == values
            assert set(inputs) == set(values) | linked


# The nodes' left, top, right and bottom in the graph as they are drawn, title included.
DRAWN = """() => {
  const {canvas, graph} = window.app
  const frame = canvas.canvas.getBoundingClientRect(), {scale, offset} = canvas.ds
  return graph.nodes.map((node) => {
    const drawn = document.querySelector(`[data-node-id="${node.id}"]`)?.getBoundingClientRect()
    const box = drawn
      ? [drawn.left - frame.left, drawn.top - frame.top, drawn.right - frame.left, drawn.bottom - frame.top]
          .map((edge, n) => edge / scale - offset[n % 2])
      : [node.pos[0], node.pos[1] - window.LiteGraph.NODE_TITLE_HEIGHT, node.pos[0] + node.size[0],
         node.pos[1] + node.size[1]]
    return [node.title, ...box.map(Math.round)]
  })
}"""


def overlapping(nodes: list[list[Any]]) -> list[tuple[str, str]]:
    return [
        (one, other)
        for (one, *a), (other, *b) in combinations(nodes, 2)
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


# Opens a workflow as a template, whose whole graph the page fits into the window.
OPEN_AS_TEMPLATE = """async ([workflow, name]) => {
  await window.app.loadGraphData(workflow, true, true, name, {openSource: 'template'})
  return true
}"""
# What a user then sees.
SEEN = """() => {
  const {canvas, graph} = window.app
  return {scale: canvas.ds.scale, red: graph.nodes.filter((n) => n.has_errors).map((n) => n.title),
          deprecated: graph.nodes.map((n) => n.title).filter((title) => title.includes('DEPRECATED'))}
}"""
SMALLEST_SCALE = 0.65  # below, the classic canvas draws no text


@pytest.mark.parametrize("nodes_2", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_template_opens_readable_in_a_usual_window(
    todays_server: ComfyServer, new_page: Callable[..., ComfyPage], nodes_2: bool, screenshots: Path
) -> None:
    from tests.comfy.page import ANSWERED

    place_own_files(todays_server.base_dir / "input")
    page = new_page(todays_server, nodes_2=nodes_2, width=1600, height=900)
    wrong = {}
    for name in NAMES:
        page.page.wait_for_function(OPEN_AS_TEMPLATE, arg=[read_workflow(name), name])
        page.page.wait_for_function(ANSWERED)  # what the page asks of a workflow's files may color its nodes
        page.settle()
        opened = page.page.evaluate(SEEN)
        page.screenshot(screenshots / f"{name} as it opens ({'Nodes 2.0' if nodes_2 else 'classic'}).png")
        if opened["scale"] < SMALLEST_SCALE or opened["red"] or opened["deprecated"]:
            wrong[name] = opened
    assert wrong == {}


def check_speech(graph: Graph, result: Result, frames_per_file: list[int], saver: str) -> list[np.ndarray]:
    waveforms = samples(result, saver)  # also checks the sample rate
    assert [waveform.shape for waveform in waveforms] == [(n * SAMPLES_PER_FRAME, 1) for n in frames_per_file]
    assert all(np.abs(waveform).max() > 0.01 for waveform in waveforms)
    return waveforms


def frames_of(result: Result, speaker: str) -> list[int]:
    """Return the frames of a node's clips, by their lengths."""
    return [round(clip["seconds"] * RATE / SAMPLES_PER_FRAME) for clip in result.outputs[speaker]["morph_clips"]]


@pytest.mark.parametrize(
    "name",
    [
        # By default it runs from the page, below.
        pytest.param("Clone a voice and speak", marks=pytest.mark.slow),
        "1 Start here",
        pytest.param("Design a voice", marks=pytest.mark.slow),  # a designed voice speaks below
    ],
)
def test_speech_is_as_long_as_its_report_says(server, convert, name) -> None:
    graph = convert(read_workflow(name))
    result = run(server, graph)
    speaker = only(graph, "MorphTTSGenerateSpeech")
    frames = frames_of(result, speaker)
    assert len(frames) == 1
    check_speech(graph, result, frames, after(graph, speaker, 0, "MorphTTSSaveSpeech"))


def test_a_designed_voice_is_cloned_kept_and_speaks(server, convert, base_dir) -> None:
    graph = convert(read_workflow("Design once, then clone"))
    clone = only(graph, "MorphTTSCloneVoice")
    words = graph[only(graph, "PrimitiveStringMultiline")]["inputs"]["value"]
    result = run(server, graph)
    assert shown(result, clone).startswith("ICL voice cloned")
    kept = load_voice(base_dir / "models" / "qwen3-tts-voices" / "old sailor.safetensors")
    assert (kept.kind, kept.model_size, kept.transcript) == ("icl", "1b7", words)
    speakers = of_kind(graph, "MorphTTSGenerateSpeech")
    assert len(speakers) == 2
    assert all(result.outputs[speaker]["morph_clips"][0]["seconds"] > 0.1 for speaker in speakers)


def reported(result: Result, node_id: str) -> str:
    return str(result.outputs[node_id]["morph_clips_report"][0])


def check_dialogue(graph: Graph, result: Result, output_folder: Path) -> None:
    script = only(graph, "MorphTTSRenderScript")
    frames = frames_of(result, script)
    saver = after(graph, script, 0, "MorphTTSSaveSpeech")
    assert saver == after(graph, script, 1, "MorphTTSSaveSpeech")
    *lines, joined = samples(result, saver)  # also checks the sample rate
    assert [line.shape for line in lines] == [(n * SAMPLES_PER_FRAME, 1) for n in frames]
    text = graph[script]["inputs"]["script"]
    pauses = sum(map(float, re.findall(r"\[pause ([\d.]+)\]", text)))
    assert len(lines) == len(re.findall(r"^(?!#).*[A-Z]+: ", text, re.M)) == 6
    assert len(joined) == sum(map(len, lines)) + round((LINE_GAP * (len(lines) - 1) + pauses) * RATE)
    saved = shown(result, after(graph, script, 2, "MorphTTSSaveSubtitles")).removeprefix("saved ")
    srt = (output_folder / saved).read_text(encoding="utf-8")
    position = 0
    for line, (start, end) in zip(lines, caption_times(srt), strict=True):
        position = find(joined, line, position)
        first, last = (round(ms * RATE / 1000) - position for ms in (start, end))
        heard = is_heard(line)
        assert 0 <= first < last <= len(line) + RATE // 1000, "a caption is within its line"
        margin = round(CAPTION_MARGIN * RATE)
        assert not heard[: max(0, first)].any() and not heard[last:].any(), "and covers all of its audible part"
        assert heard[: first + margin + 48].any() and heard[last - margin - 48 :].any(), "and hardly more"
        position += len(line)


def test_captions_are_dubbed_at_their_times_and_the_one_that_is_too_long_is_listed(server, convert) -> None:
    graph = convert(read_workflow("Dub captions"))
    result = run(server, graph)
    dub = only(graph, "MorphTTSDub")
    *clips, track = samples(result, after(graph, dub, 1, "MorphTTSSaveSpeech"))
    times = caption_times(graph[dub]["inputs"]["captions"])
    spoken = [times[place] for place in (0, 1, 3, 4)]  # the third has nothing to speak
    for clip, (start, _) in zip(clips, spoken, strict=True):
        begin = start * RATE // 1000
        assert is_heard(clip[: len(clip) // 240 * 240])[: round(0.06 * RATE)].any()
        assert np.array_equal(track[begin : begin + len(clip)], clip)
    assert re.search(r"Caption 5 \(00:00:10,500, .*\) is [\d.]+ s too long at speed 1.25", shown(result, dub))
    assert f"The track is {len(track) / RATE:.3f} s long." in shown(result, dub)


def test_a_video_is_dubbed_with_its_own_words(server, convert, base_dir) -> None:
    pytest.importorskip("faster_whisper", reason="not run: no faster-whisper (tests/requirements.txt)")
    from lab.judges.asr import join_model

    join_model(base_dir / "models" / "faster-whisper" / "base")
    graph = convert(read_workflow("Dub a video"))
    result = run(server, graph)
    assert "John Dashwood had then leisure" in str(result.outputs[only(graph, "MorphTTSTranscribe")]["text"])
    [video] = [one for one in result.files if one.node_id == only(graph, "SaveVideo")]
    sound = av_seconds(video.path)
    clips = result.outputs[only(graph, "MorphTTSDub")]["morph_clips"]
    assert clips and sound > 6, "ComfyUI ends it with the pictures"


def av_seconds(path: Path) -> float:
    """Return the seconds of a video's sound."""
    import av

    with av.open(str(path)) as file:
        [track] = file.streams.audio
        return float(track.duration * track.time_base)


def test_a_voice_is_trained_on_a_folder_and_speaks(server, convert, base_dir) -> None:
    graph = convert(read_workflow("Train a voice"))
    train, speaker = only(graph, "MorphTTSTrainVoice"), only(graph, "MorphTTSGenerateSpeech")
    assert graph[train]["inputs"]["consent"] is False, "nobody is asked by the template itself"
    for source in RECORDINGS.values():
        (base_dir / "input" / TRAINED / source).with_suffix(".txt").write_text(WORDS, encoding="utf-8")
    graph[train]["inputs"] |= {
        "folder": TRAINED, "consent": True, "recogniser": "off", "steps": 2, "batch_size": 1
    }  # fmt: skip
    result = run(server, graph)
    assert shown(result, train).startswith("trained my voice on 2 recordings")
    check_speech(graph, result, frames_of(result, speaker), after(graph, speaker, 0, "MorphTTSSaveSpeech"))
    assert (base_dir / "models" / "qwen3-tts-loras" / "my voice" / "README.md").exists()


def test_the_words_of_a_script_are_karaoke_beside_its_track(server, convert, base_dir) -> None:
    graph = convert(read_workflow("Karaoke captions"))
    result = run(server, graph)
    script = only(graph, "MorphTTSRenderScript")
    [track] = samples(result, after(graph, script, 1, "MorphTTSSaveSpeech"))
    said = shown(result, only(graph, "MorphTTSWordCaptions"))
    [name] = re.findall(r"^saved (karaoke_\d{5}\.ass)$", said, re.M)
    captions = pysubs2.load(str(base_dir / "output" / name))
    written = re.findall(r"^[A-Z]+: (.+)$", graph[script]["inputs"]["script"], re.M)
    assert [one.plaintext for one in captions] == written
    begin = 0
    for one, clip in zip(captions, result.outputs[script]["morph_clips"], strict=True):
        end = begin + clip["seconds"]
        assert begin - 0.01 <= one.start / 1000 < one.end / 1000 <= end + 0.01
        lengths = [int(length) for length in re.findall(r"\\k(\d+)", one.text)]
        assert sum(lengths) * 10 == one.end - one.start and len(lengths) > len(one.plaintext.split())
        begin = end + LINE_GAP
    assert begin - LINE_GAP == pytest.approx(len(track) / RATE, abs=0.01)


def is_heard(line: np.ndarray) -> np.ndarray:
    """Return for each sample whether its 10 ms are at most 30 dB below the loudest 10 ms of the line."""
    levels = np.square(line).reshape(-1, RATE // 100).mean(axis=1)
    return np.repeat(levels >= levels.max() / 1000, RATE // 100)


def caption_times(srt: str) -> list[tuple[int, int]]:
    """Return the start and the end of every caption in milliseconds."""
    stamps = re.findall(r"(\d\d):(\d\d):(\d\d),(\d\d\d)", srt)
    times = [((int(h) * 60 + int(m)) * 60 + int(s)) * 1000 + int(ms) for h, m, s, ms in stamps]
    return list(zip(times[::2], times[1::2], strict=True))


def find(joined: np.ndarray, line: np.ndarray, start: int) -> int:
    """Return the sample index at which a line starts in the joined track, at most three seconds after ``start``."""
    for at in range(start, start + 3 * RATE):
        if joined[at] == line[0] and np.array_equal(joined[at : at + len(line)], line):
            return at
    raise AssertionError(f"the line is not in the three seconds after sample {start}")


@pytest.mark.slow
def test_a_dialogue_becomes_files_a_track_and_matching_subtitles(server, convert, base_dir) -> None:
    graph = convert(read_workflow(DIALOGUE))
    check_dialogue(graph, run(server, graph), base_dir / "output")


def test_processed_lines_are_normalized_and_joined(server, convert) -> None:
    graph = convert(read_workflow("Smooth and normalize"))
    result = run(server, graph)
    script = only(graph, "MorphTTSRenderScript")
    lengths = [clip["seconds"] for clip in result.outputs[script]["morph_clips"]]
    [finished] = samples(result, after(graph, only(graph, "MorphTTSJoinAudio"), 0, "MorphTTSSaveSpeech"))
    assert "Voices found by name: heart (preset)" in reported(result, script)
    assert finished.shape[1] == 1
    assert LINE_GAP * RATE < len(finished) <= (sum(lengths) + LINE_GAP) * RATE + 1
    assert np.abs(finished).max() == pytest.approx(10 ** (-3 / 20), abs=1e-3)
