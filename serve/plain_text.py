"""Make texts from servers, file names and voice files safe to show.

Control characters can clear or overwrite a terminal. Characters that reverse the direction of writing make a name look
like another.
"""

from ..morph.text.encoding import CONTROL

LAYOUT = "\n\t"  # of our own messages


def is_plain(words: str) -> bool:
    """Return whether words have no control characters and line breaks."""
    return not CONTROL.search(words)


def one_line(words: str) -> str:
    """Return words on one line, with a blank for every control character."""
    return " ".join(CONTROL.sub(" ", words).split())


def escaped(text: str) -> str:
    r"""Return a text with control characters as escapes such as ``\x1b``; line breaks and tabs stay."""
    return CONTROL.sub(lambda one: one[0] if one[0] in LAYOUT else one[0].encode("unicode_escape").decode(), text)
