"""Estimate how long a text takes to speak: from its letters, or from its tokens."""

# English takes about 1.15 letters and spaces per frame of 80 ms (14 per second), and never less than 0.4 of that
# time. Characters of Chinese, Japanese and Korean are syllables and count as two letters.

CHARS_PER_FRAME = 1.15
SYLLABLE_CHARS = 2
TOO_FAST = 0.4
# Frames before which a line may not end, for checkpoints that end short lines too early: the silence around it, longer
# after a reference (ICL), plus half of its text's time. The demo voice's shortest correct lines ("Yes.") have 12
# frames, and 15 after a reference.
SILENCE_FRAMES, SILENCE_FRAMES_ICL = 8, 14
MINIMUM_SHARE = 0.5
FIRST_SYLLABLE = "\u2e80"  # Unicode's East Asian characters start here

PACE = 4  # frames per text token, at 12.5 frames and 3 tokens per second; slow, dramatic reading takes 8


def expected_frames(text_tokens: int) -> int:
    """Return the frames that a text is expected to take, for progress."""
    return 10 + PACE * text_tokens


def reserved_frames(text_tokens: int) -> int:
    """Return the frames to reserve cache for. The cache grows if a line needs more."""
    return 15 + PACE * 3 // 2 * text_tokens


def longest_frames(text_tokens: int) -> int:
    """Return the frames at which a line is cut off: 6 s, and about a second per token."""
    return 75 + PACE * 3 * text_tokens


def text_frames(text: str) -> float:
    """Return the frames of a text at an ordinary pace, without silence around it."""
    letters = sum(map(str.isalnum, text))
    if not text.isascii():
        letters += (SYLLABLE_CHARS - 1) * sum(char >= FIRST_SYLLABLE and char.isalnum() for char in text)
    spaces = text.count(" ")
    return (letters + spaces) / CHARS_PER_FRAME


def likely_frames(text: str) -> int:
    """Return the likely frames of a line with the silence around it, without tokenizing it."""
    return SILENCE_FRAMES + round(text_frames(text))


def shortest_frames(text: str) -> int:
    """Return the fewest frames in which a text can have been spoken."""
    return int(TOO_FAST * text_frames(text))


def minimum_frames(text: str, after_reference: bool) -> int:
    """Return the frames before which a line may not end, for checkpoints that end short lines too early."""
    around = SILENCE_FRAMES_ICL if after_reference else SILENCE_FRAMES
    return around + int(MINIMUM_SHARE * text_frames(text))
