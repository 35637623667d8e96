"""What web/js adds to ComfyUI's page: texts that a run returns are shown on their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.comfy.examples import PAGES, read_workflow, set_widget

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage

DIALOGUE = "Dialogue to files, track and subtitles"
SCRIPT, SUBTITLES = "MorphTTSRenderScript", "MorphTTSSaveSubtitles"
SHOWN = """(kind) => window.app.graph.nodes.find((node) => node.type === kind)
  .widgets.find((widget) => widget.name === 'shown_text')?.value"""
SAVED = """async (kind) => {
  const {output, workflow} = await window.app.graphToPrompt()
  return [workflow.nodes.find((node) => node.type === kind).widgets_values,
          Object.keys(Object.values(output).find((node) => node.class_type === kind).inputs).sort()]
}"""


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    server, nodes_2 = PAGES[request.param]
    with browser.open(request.getfixturevalue(server), nodes_2=nodes_2) as opened:
        yield opened


def run(page: ComfyPage, seed: int) -> None:
    set_widget(page, SCRIPT, "seed", seed)  # a run that is in no cache
    kind, data = page.run()
    assert kind == "execution_success", data


def test_a_returned_text_is_shown_on_its_node_and_not_saved(page: ComfyPage) -> None:
    page.load(read_workflow(DIALOGUE))
    set_widget(page, SCRIPT, "script", "BEN: Hello there.")
    before = page.page.evaluate(SAVED, SUBTITLES)
    assert before == [["dialogue"], ["name", "srt"]]
    run(page, 1)
    first = page.page.evaluate(SHOWN, SUBTITLES)
    assert first.startswith("saved dialogue_")
    page.fit()
    box = page.page.locator("textarea[readonly]").and_(page.page.locator(":visible"))
    assert first in [box.nth(n).input_value() for n in range(box.count())]
    run(page, 2)
    second = page.page.evaluate(SHOWN, SUBTITLES)
    assert second.startswith("saved dialogue_") and second != first
    assert page.page.evaluate(SAVED, SUBTITLES) == before
    assert page.problems() == []
