"""The preview pictures of the example workflows: a title, readable on a small card, above the most important nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.comfy.page import ComfyPage


@dataclass(frozen=True)
class Card:
    """A workflow's picture: its title and text, its color, and the groups of the workflow that it shows.

    ``view`` (left, top, width, height in the graph) shows another part of it than the groups' top.
    """

    title: str
    says: str
    color: str
    groups: tuple[int, ...] = ()
    view: tuple[int, int, int, int] | None = None


CARDS = {
    "1 Start here": Card("Start here", "Type a text, press Run", "#1f9d55", (2, 3)),
    "A whole cast in one node": Card("A whole cast", "All voices in one node", "#4d7c0f", (5, 3)),
    "Clone a voice and speak": Card("Clone a voice", "A recording of 1 to 30 seconds speaks", "#c2571a", (2, 3)),
    "Design a voice": Card("Design a voice", "Describe it in words", "#b83280", (2, 3)),
    "Design once, then clone": Card("Design, then clone", "A designed voice that stays", "#9d174d", (2, 4)),
    "Dialogue to files, track and subtitles": Card("Dialogue", "A script, voices, subtitles", "#0e7490", (2, 3)),
    "Dub captions": Card("Dub captions", "Speech at the times of an SRT", "#78350f", (2, 3)),
    "Dub a video": Card("Dub a video", "Its words, in another voice", "#166534", (2, 4)),
    "Give a voice a mood": Card("Give it a mood", "Angry less calm, added to a voice", "#a16207", (3, 4)),
    "Karaoke captions": Card("Karaoke captions", "Words light up as they are heard", "#be185d", (2, 3)),
    "SEQ_GROUPS sweep": Card("Speed or quality?", "Hear what each setting costs", "#6d28d9", (2, 3)),
    "Save, load and blend voices": Card("Blend and save", "Mix voices, keep them", "#b7791f", (2, 3)),
    "Script from a text file": Card("Script file", "A text file becomes speech", "#475569", (2, 3)),
    "Smooth and normalize": Card("Smooth and level", "Finish any audio", "#2b6cb0", (2, 3)),
    "Train a voice": Card("Train a voice", "Closer than a clone, in minutes", "#b91c1c", (2, 3)),
}
BAND = 250  # height of the title band in pixels, of 720
SHOW = """({title, says, color, groups, view, band}) => {
  const {canvas, graph} = window.app
  const shown = graph.groups.filter((one) => groups.includes(one.id)).map((one) => [...one.pos, ...one.size])
  const boxes = view ? [view] : shown
  const left = Math.min(...boxes.map((b) => b[0])), right = Math.max(...boxes.map((b) => b[0] + b[2]))
  const top = Math.min(...boxes.map((b) => b[1])), bottom = Math.max(...boxes.map((b) => b[1] + b[3]))
  const scale = Math.max(innerWidth / (right - left), (innerHeight - band) / (bottom - top))
  canvas.ds.scale = scale
  canvas.ds.offset[0] = (innerWidth / scale - (right - left)) / 2 - left
  canvas.ds.offset[1] = band / scale - top
  canvas.setDirty(true, true)
  document.getElementById('morph-card')?.remove()
  const card = document.createElement('div')
  card.id = 'morph-card'
  card.style = `position: fixed; inset: 0 0 auto 0; height: ${band}px; background: ${color}; color: white;
    z-index: 99999; padding: 28px 48px; font: bold 104px/1.1 sans-serif; box-sizing: border-box`
  const line = document.createElement('div')
  line.style = 'font: 48px/1.3 sans-serif'
  card.append(title, line)
  line.textContent = says
  document.body.append(card)
}"""
HIDE = "() => document.getElementById('morph-card').remove()"


def take_picture(page: ComfyPage, name: str, path: Path) -> None:
    """Write the loaded workflow's picture as a JPEG, if pictures are wanted. The page must be in focus mode."""
    if not page.pictures:
        return
    card = CARDS[name]
    page.page.evaluate(SHOW, {**vars(card), "groups": list(card.groups), "band": BAND})
    page.page.wait_for_timeout(800)
    page.page.screenshot(path=path, type="jpeg", quality=88)
    page.page.evaluate(HIDE)
