"""Paths, addresses of pages, and names with underscores: their signs are said."""

from __future__ import annotations

import re

from .letters import spell
from .rules import Rule

# What has a slash behind a name with a dot, or begins with one; C:\Users; foo_bar. Without white space: no sentence.
SITE = re.compile(
    r"(?<![\w@./-])(?:(https?)://)?((?:[\w-]+\.)+[a-z]{2,10})((?:/[\w.~%?=&#+-]*)*)(?<![.?&,])(?!\w)"
)
UNIX_PATH = re.compile(r"(?<![^\s\"'(\[,:;])~?(?:/[A-Za-z_.][\w.-]*){1,20}/?(?<!\.)(?!\w)")
WINDOWS_PATH = re.compile(r"(?<!\w)([A-Za-z]):((?:\\[\w.-]*)+)(?<!\.)")
UNDERSCORE = re.compile(r"(?<=[A-Za-z\d])_(?=[A-Za-z\d])")
HANDLE = re.compile(r"(?<![\w.@])@(?=[A-Za-z]\w)")
HASHTAG = re.compile(r"(?<![\w&#])#(?=[A-Za-z]{2})")
SIGN_NAMES = {
    "/": "slash",
    "\\": "backslash",
    ".": "dot",
    "-": "dash",
    "_": "underscore",
    "~": "tilde",
    "?": "question mark",
} | {
    "=": "equals",
    "&": "and",
    "#": "hash",
    "%": "percent",
    "+": "plus",
    ":": "colon",
}
FILE = re.compile(
    r"(?<![\w./@])([\w-]{1,60})\.(txt|pdf|docx?|xlsx?|pptx?|exe|py|js|ts|css|html?|xml|csv|md|jpe?g|png|gif|svg|webp|mp[34]|"
    r"wav|flac|ogg|zip|gz|tar|rar|json|ya?ml|toml|ini|log|bat|sh|dll|iso|psd|epub|safetensors)(?![\w/]|\.\w)"
)
READ_AS_WORDS = frozenset(
    ("zip", "gif", "json", "bat", "log", "ini", "wav", "flac", "tar", "yaml", "toml", "jpeg")
)
PATH_WORDS = {"usr": "user", "tmp": "temp", "etc": "ee tee see", "www": "double-you double-you double-you"}
PARTS = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z\d]")


def _named(text: str) -> str:
    """Return a path or a page's address with its signs in words."""
    return " ".join(SIGN_NAMES.get(part, PATH_WORDS.get(part, part)) for part in PARTS.findall(text))


def _file(match: re.Match[str]) -> str:
    """Return notes.txt as "notes dot tee ex tee"."""
    name, kind = match.groups()
    letters, figures = kind.rstrip("34").upper(), kind[len(kind.rstrip("34")) :]
    said = kind if kind in READ_AS_WORDS or len(kind) > 4 else f"{spell(letters)} {figures}".rstrip()
    return f"{name} dot {said}"


def _site(match: re.Match[str]) -> str:
    """Return example.org/about as "example dot org slash about"; without a path it is the library's."""
    if match[3] in ("", "/"):
        return match[0]
    scheme = f"{match[1]} colon slash slash " if match[1] else ""
    return scheme + _named(match[2] + match[3])


RULES: tuple[Rule, ...] = (
    (FILE, _file),
    (SITE, _site),
    (WINDOWS_PATH, lambda match: f"{match[1].upper()} colon {_named(match[2])}"),
    (UNIX_PATH, lambda match: _named(match[0])),
    (UNDERSCORE, " underscore "),
    (HANDLE, "at "),
    (HASHTAG, "hashtag "),
)
