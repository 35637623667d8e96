"""Make words from outside safe to show: from a server, a file's name, a voice file.

Control characters can clear a terminal, set its title, or overwrite its text. Characters that reverse the direction
of writing make a name look like another.
"""

import re

from ..morph.text.encoding import CONTROL

LAYOUT = "\n\t"  # of our own messages


def is_plain(words: str) -> bool:
    """Return whether words have no control character, and no line break."""
    return not CONTROL.search(words)


def one_line(words: str) -> str:
    """Return words on one line, with a blank for every control character."""
    return " ".join(CONTROL.sub(" ", words).split())


def escaped(text: str) -> str:
    r"""Return a text with its control characters as escapes such as ``\x1b``; line breaks and tabs stay."""
    return CONTROL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return character if character in LAYOUT else character.encode("unicode_escape").decode()
