"""Lines are made once in a real ComfyUI: a change makes one line, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.comfy import graphs
from tests.comfy.examples import NODES_2, PAGES
from tests.comfy.graphs import Graph, node, samples, shown, speech

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer, Result

pytestmark = pytest.mark.usefixtures("recordings")

SCRIPT = "ANNA: Good morning!\nANNA: Not a minute.\n[pause 0.5]\nANNA: Then let us walk.\nANNA: It rains."
EDITED = SCRIPT.replace("Not a minute", "Not one hour")
LONGER = EDITED + "\nANNA: And it is cold."
OTHER = "ANNA: This line is new."
FOLDER = Path("user", "__qwen3_tts_morph", "lines")

OPEN_SETTINGS = "() => window.app.extensionManager.command.execute('Comfy.ShowSettingsDialog')"


def scene(script: str, **changes: Any) -> Graph:
    return graphs.cloned_voice() | {
        "sampling": graphs.sampling(),
        "cast": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "script": graphs.render_script(script, **changes),
        "lines": node("SaveAudio", audio=["script", 0], filename_prefix="line"),
        "report": node("PreviewAny", source=["script", 3]),
    }


def run(server: ComfyServer, graph: Graph) -> Result:
    result = server.run(graph)
    assert result.ok, result.error
    return result


def kept(folder: Path) -> list[Path]:
    return list(folder.glob("*.line.safetensors"))


def test_one_changed_line_is_made_again_at_once_and_after_a_restart(server, base_dir) -> None:
    server.post("/morph/lines/clear")
    folder = base_dir / FOLDER
    first = run(server, scene(SCRIPT))
    assert "eused" not in shown(first, "report") and len(kept(folder)) == 4
    edited = run(server, scene(EDITED))
    assert "3 of 4 lines reused from an earlier run." in shown(edited, "report")
    server.stop()
    server.start()
    longer = run(server, scene(LONGER))
    assert "4 of 5 lines reused from an earlier run." in shown(longer, "report")
    before, after, last = (samples(result, "lines") for result in (first, edited, longer))
    assert all(np.array_equal(before[index], after[index]) for index in (0, 2, 3))
    assert not np.array_equal(before[1], after[1])
    assert all(np.array_equal(one, other) for one, other in zip(after, last[:4], strict=True))
    off = run(server, scene(LONGER, reuse_lines=False))
    assert "eused" not in shown(off, "report") and len(kept(folder)) == 6


def test_generate_speech_profits_damage_is_said_and_lines_can_be_removed(server, base_dir) -> None:
    server.post("/morph/lines/clear")
    assert server.get("/morph/lines") == {"lines": 0, "bytes": 0}
    first = server.run_freed(speech())  # other tests may have run the same graph
    assert "eused" not in shown(first, "report") and server.get("/morph/lines")["lines"] == 1
    again = server.run_freed(speech())  # ComfyUI has forgotten what nodes returned
    assert "Reused from an earlier run." in shown(again, "report")
    assert np.array_equal(samples(first)[0], samples(again)[0])
    [file] = kept(base_dir / FOLDER)
    file.write_bytes(file.read_bytes()[:-1])
    mended = server.run_freed(speech())
    assert "The line kept from an earlier run is damaged: it was made again." in shown(mended, "report")
    assert np.array_equal(samples(first)[0], samples(mended)[0])
    assert server.post("/morph/lines/clear")["lines"] == 1
    assert server.get("/morph/lines") == {"lines": 0, "bytes": 0} and not file.exists()
    assert "eused" not in shown(server.run_freed(speech()), "report")
    # The folder is none that ComfyUI's routes serve.
    assert "__qwen3_tts_morph" not in str(server.get("/userdata?dir=.&recurse=true"))


@pytest.mark.slow
def test_no_lines_are_kept_where_the_user_allows_none(start_server, base_dir) -> None:
    folder = base_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    server = start_server(base_dir, env={"MORPH_TTS_CACHE_MB": "0"})
    assert "eused" not in shown(run(server, scene(OTHER)), "report")
    assert set(folder.iterdir()) == before
    server.stop()


@pytest.mark.parametrize("label", NODES_2)
def test_the_settings_show_how_many_lines_are_kept_and_remove_them(label, request, browser) -> None:
    name, nodes_2 = PAGES[label]
    server = request.getfixturevalue(name)
    server.post("/morph/lines/clear")
    file = server.base_dir / FOLDER / f"{'a' * 64}.line.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(1_500_000))
    with browser.open(server, nodes_2=nodes_2) as page:
        page.page.evaluate(OPEN_SETTINGS)
        page.page.locator("[role=dialog]").get_by_text("Qwen3-TTS Morph", exact=True).first.click()
        row = page.page.locator(".morph-kept-lines")
        row.get_by_text("Lines: 1, 1.5 MB").wait_for()
        row.get_by_role("button", name="Remove").click()
        row.get_by_text("Lines: 0, 0.0 MB").wait_for()
        assert not file.exists() and row.get_by_role("button").is_disabled()
        page.screenshot(request.getfixturevalue("screenshots") / f"kept lines {label}.png")
        assert page.problems() == []
