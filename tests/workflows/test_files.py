"""Checks of the example workflow files that need no ComfyUI."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / "workflows").glob("*.json"))
CORE = {"LoadAudio", "SaveAudio", "PreviewAny", "PreviewImage", "PrimitiveStringMultiline", "MarkdownNote"}
CORE |= {"LoadVideo", "GetVideoComponents", "CreateVideo", "SaveVideo"}
DEMO_VOICE = "demo voice (in the pack)"
NEEDS_ANOTHER = {"Design a voice", "Design once, then clone"}  # the demo voice cannot design voices
MARGIN = 20  # pixels between a group's border and its nodes
TITLE = 30  # pixels; a node's title is above its position


def own_nodes() -> set[str]:
    """Return the ids of the pack's nodes, read from the source, because importing them needs ComfyUI."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "nodes").rglob("*.py")]
    return {name for source in sources for name in re.findall(r'schema\(\s*"(MorphTTS\w+)"', source)}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def title(path: Path) -> str:
    return path.stem.removeprefix("Qwen3-TTS ")


def names(paths: list[Path]) -> list[str]:
    return [title(path) for path in paths]


def test_every_node_of_the_pack_has_an_example() -> None:
    used = {node["type"] for path in WORKFLOWS for node in read(path)["nodes"]}
    # A remote model needs a server that the owner has listed, a LoRA somebody's training: they have pages
    # in docs/ instead. Trim Recording is for the user's own recordings: its help page shows it in a graph.
    without = {"MorphTTSRemoteModel", "MorphTTSLoadLora", "MorphTTSTrimRecording"}
    assert own_nodes() - used == without
    assert used <= own_nodes() | CORE
    assert len(WORKFLOWS) >= 6


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_its_picture_has_the_same_name_and_is_small(path: Path) -> None:
    picture = path.with_suffix(".jpg")
    assert picture.stat().st_size < 200_000
    with Image.open(picture) as image:
        assert image.format == "JPEG" and image.size == (1280, 720)


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_links_connect_matching_socket_types_and_sockets_list_their_links(path: Path) -> None:
    workflow = read(path)
    nodes = {node["id"]: node for node in workflow["nodes"]}
    assert len(nodes) == len(workflow["nodes"]) == workflow["last_node_id"]
    assert sorted(link[0] for link in workflow["links"]) == list(range(1, workflow["last_link_id"] + 1))
    for number, source, output, target, slot, kind in workflow["links"]:
        leaving, entering = nodes[source]["outputs"][output], nodes[target]["inputs"][slot]
        assert number in leaving["links"] and leaving["type"] == kind
        assert number == entering["link"] and entering["type"] in (kind, "*")
    links = [link for node in nodes.values() for socket in node["outputs"] for link in socket["links"] or []]
    assert sorted(links) == sorted(link[0] for link in workflow["links"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_a_note_says_what_to_do_and_which_checkpoint_is_used(path: Path) -> None:
    workflow = read(path)
    notes = "\n".join(node["widgets_values"][0] for node in workflow["nodes"] if node["type"] == "MarkdownNote")
    assert f"# {title(path)}\n" in notes and "**Run**" in notes
    checkpoints = values(path, "MorphTTSLoadModel")
    assert checkpoints and all(f"`{checkpoint}`" in notes for checkpoint in checkpoints)


def values(path: Path, kind: str) -> list[str]:
    """Return the first widget value of every node of a type."""
    return [node["widgets_values"][0] for node in read(path)["nodes"] if node["type"] == kind]


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_it_opens_with_the_demo_voice_and_its_speakers(path: Path) -> None:
    checkpoints = values(path, "MorphTTSLoadModel")
    assert (checkpoints == [DEMO_VOICE]) == (title(path) not in NEEDS_ANOTHER)
    known = read(ROOT / "demo_voice" / "config.json")["talker_config"]["spk_id"]
    speakers = values(path, "MorphTTSPresetVoice")
    assert set(speakers) <= set(known) and len(set(speakers)) == len(speakers)


def box(node: dict[str, Any]) -> tuple[float, float, float, float]:
    """Return a node's left, top, right and bottom, including its title."""
    (x, y), (width, height) = node["pos"], node["size"]
    return x, y - TITLE, x + width, y + height


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_nodes_are_in_groups_and_do_not_overlap(path: Path) -> None:
    workflow = read(path)
    boxes = {node["id"]: box(node) for node in workflow["nodes"]}
    overlapping = [
        (one, other)
        for one, (left, top, right, bottom) in boxes.items()
        for other, (x0, y0, x1, y1) in boxes.items()
        if one < other and left < x1 and x0 < right and top < y1 and y0 < bottom
    ]
    assert overlapping == []
    frames = [
        (x + MARGIN, y + MARGIN, x + width - MARGIN, y + height - MARGIN)
        for x, y, width, height in (group["bounding"] for group in workflow["groups"])
    ]
    for node in workflow["nodes"]:
        left, top, right, bottom = boxes[node["id"]]
        held = [x0 <= left and y0 <= top and right <= x1 and bottom <= y1 for x0, y0, x1, y1 in frames]
        assert sum(held) == (0 if node["type"] == "MarkdownNote" else 1), node["type"]


def link_points(workflow: dict[str, Any], link: list[Any]) -> list[tuple[float, float]]:
    """Return the points of a link: where it leaves its node, its reroutes in order, and where it arrives."""
    nodes = {node["id"]: node for node in workflow["nodes"]}
    number, source, output, target, slot, _ = link
    (x0, y0), (x1, y1) = nodes[source]["pos"], nodes[target]["pos"]
    reroutes = {one["id"]: one for one in workflow["extra"].get("reroutes", [])}
    extensions = {one["id"]: one["parentId"] for one in workflow["extra"].get("linkExtensions", [])}
    between, at = [], extensions.get(number)
    while at is not None:
        assert number in reroutes[at]["linkIds"]
        between.insert(0, tuple(reroutes[at]["pos"]))
        at = reroutes[at].get("parentId")
    first_slot, slot_height = 14, 20
    leaves = (x0 + nodes[source]["size"][0], y0 + first_slot + slot_height * output)
    return [leaves, *between, (x1, y1 + first_slot + slot_height * slot)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_no_link_runs_behind_a_node(path: Path) -> None:
    workflow = read(path)
    hidden = []
    for link in workflow["links"]:
        points = link_points(workflow, link)
        for (x0, y0), (x1, y1) in pairwise(points):
            steps = [(x0 + (x1 - x0) * n / 200, y0 + (y1 - y0) * n / 200) for n in range(201)]
            for node in workflow["nodes"]:
                left, top, right, bottom = box(node)
                if any(left + 2 < x < right - 2 and top + 2 < y < bottom - 2 for x, y in steps):
                    hidden.append((link[0], node["id"]))
    assert hidden == []


def test_comfyuis_dialog_finds_all_by_qwen3_tts_and_shows_start_here_first() -> None:
    """It searches in files' names alone, and sorts names that begin with a digit behind the others."""
    assert all(path.stem.startswith("Qwen3-TTS ") for path in WORKFLOWS)
    assert title(WORKFLOWS[0]) == "1 Start here"
