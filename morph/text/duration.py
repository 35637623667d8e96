"""How long a text takes to speak, by its letters: what a line's end is judged by.

English takes about 1.15 letters and spaces per frame of 80 ms (14 a second); 0.4 of that time is faster than anybody
speaks. Signs of Chinese, Japanese and Korean are whole syllables, and count two letters each.
"""

from __future__ import annotations

CHARS_PER_FRAME = 1.15
SYLLABLE_CHARS = 2
TOO_FAST = 0.4
# A line that is held from ending: what silence around it takes, after a reference (ICL) longer, and half of its text's
# time. The demo voice's shortest right lines ("Yes.") have 12 frames, and 15 after a reference.
HELD_FRAMES, HELD_FRAMES_ICL = 8, 14
HELD_SHARE = 0.5
FIRST_SYLLABLE = "\u2e80"  # from here on Unicode has the signs of East Asia


def text_frames(text: str) -> float:
    """Frames that a text takes at an ordinary pace, without silence around it."""
    letters = sum((SYLLABLE_CHARS if char >= FIRST_SYLLABLE else 1) for char in text if char.isalnum())
    spaces = text.count(" ")
    return (letters + spaces) / CHARS_PER_FRAME


def shortest_frames(text: str) -> int:
    """The fewest frames in which a text can have been spoken."""
    return int(TOO_FAST * text_frames(text))


def held_frames(text: str, after_reference: bool) -> int:
    """Frames before which a line is held from ending, for checkpoints that end short lines before they begin.

    ``after_reference``: whether the line goes on from a recording (ICL).
    """
    around = HELD_FRAMES_ICL if after_reference else HELD_FRAMES
    return around + int(HELD_SHARE * text_frames(text))
