"""Paths, web addresses, and names with underscores: their signs are spoken."""

import re

from ..lists import alternatives_of, table
from .letters import spell
from .rules import Rule, alternatives, rule
from .short_forms import DIRECTIONS
from .words import in_pairs

PORT = re.compile(
    r"(?<![\w.-])(localhost|(?:\d{1,3}\.){3}\d{1,3}|(?:[\w-]+\.)+[a-z]{2,10}):(\d{2,4})(?!\w)"
)  # localhost:8080
SIGN_NAMES = table("addresses.sign_names")
FILE = re.compile(rf"(?<![\w./@])([\w-]{{1,60}})\.({alternatives_of('addresses.files')})(?![\w/]|\.\w)")
READ_AS_WORDS = frozenset("com org net gov zip gif json bat log ini wav flac tar yaml toml jpeg".split())  # noqa: SIM905
PATH_WORDS = {"usr": "user", "tmp": "temp", "etc": "ee tee see"}
PARTS = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z\d]")
KEYS = {"ctrl": "control", "cmd": "command"}
# Without a path: only endings that are no words, since "the end.then" is no page.
ENDING = re.compile(r"(?<![\w.])\.(com|org|net|NET|edu|gov|pdf|exe|zip|csv|txt|jpg)\b(?!\.\w)")  # a .com site
DOMAIN = re.compile(
    r"(?<![\w@./-])((?:[\w-]+\.)+(?:org|net|edu|gov|info|biz|io|ai|app|dev|tv|xyz|de|fr|nl|eu|ch|jp|uk|au|ca))(?![\w/]|\.\w)"
)
UNSPEAKABLE = re.compile("[b-df-hj-np-tv-xz]{2,4}")
SPELLED_ENDS = frozenset("io ai tv uk de fr nl eu ch jp au ca".split())  # noqa: SIM905
# States after a town: Portland, OR.
STATES = table("addresses.states")
NEWS_STATES = table("addresses.news_states")
# N. Korea, NE winds; British codes after a town: SW1Y 4LB
PARTS_OF_COUNTRIES = re.compile(rf"\b([NSEW])\. (?=(?:{alternatives_of('addresses.parts_of_countries')})\b)")
CORNERS = re.compile(r"\b(NE|NW|SE|SW)\b(?= (?:winds?|coast|corner|side|part|of|region|edge|tip|suburbs?)\b)")
OTHER_STATES = re.compile(
    r"(?:(?<=Orleans, )|(?<=Rouge, ))(LA)\b|(?:(?<=Baltimore, )|(?<=Bethesda, ))(MD)\b|"
    r"(?:(?<=Tulsa, )|(?<=Oklahoma City, ))(OK)\b"
)


def _named(text: str) -> str:
    return " ".join(SIGN_NAMES.get(part, PATH_WORDS.get(part, part)) for part in PARTS.findall(text))


def _file_kind(kind: str) -> str:
    letters, figures = kind.rstrip("34").upper(), kind[len(kind.rstrip("34")) :]
    return kind if kind in READ_AS_WORDS or len(kind) > 4 else f"{spell(letters)} {figures}".rstrip()


def _site(match: re.Match[str]) -> str:
    """Return example.org/about as "example dot org slash about"; the library reads hosts without a path."""
    if match[3] in ("", "/"):
        return match[0]
    scheme = f"{match[1]} colon slash slash " if match[1] else ""
    return scheme + _host(match[2]) + " " + _named(match[3])


def _key(match: re.Match[str]) -> str:
    key = match[1].lower()
    return KEYS.get(key, key) + (" delete" if match[2] else " ")


def _host(host: str) -> str:
    """Return example.co.uk as "example dot co dot you kay"; names without a vowel are spelled, too."""
    *names, end = host.split(".")
    said = [spell(name.upper()) if UNSPEAKABLE.fullmatch(name) else _named(name) for name in names]
    return " dot ".join([*said, spell(end.upper()) if end in SPELLED_ENDS else end])


def _postcode(match: re.Match[str]) -> str:
    area, district, letter, sector, unit = match.groups()
    first = f"{spell(area)} {district} {spell(letter)}".rstrip()
    return f"{first}, {sector} {spell(unit)}"


RULES: tuple[Rule, ...] = (
    (FILE, lambda match: f"{match[1]} dot {_file_kind(match[2])}"),
    (ENDING, lambda match: f"dot {_file_kind(match[1].lower())}"),
    rule(r"\b((?i:dial|press) )\*(?!\*)", r"\1star "),
    rule(r"\b(?i:(ctrl|cmd|alt|shift)) ?\+ ?(?i:(del)\b|(?=\w))", _key),
    (PORT, lambda match: f"{match[1]} colon {in_pairs(match[2])}"),
    # example.org/about, https://example.org
    rule(r"(?<![\w@./-])(?:(https?)://)?((?:[\w-]+\.)+[a-z]{2,10})((?:/[\w.~%?=&#+-]*)*)(?<![.?&,])(?!\w)", _site),
    (DOMAIN, lambda match: _host(match[1])),
    (PARTS_OF_COUNTRIES, lambda match: DIRECTIONS[match[1]] + " "),
    (CORNERS, lambda match: DIRECTIONS[match[1]].lower()),
    rule(rf"(?<=[a-z], )({alternatives(STATES)})\b(?=[.,;:!?)\"]| [a-z\d]|\Z)", lambda match: STATES[match[1]]),
    rule(r"\b([A-Z]{1,2})(\d{1,2})([A-Z]?) (\d)([A-Z]{2})\b(?![.\w])", _postcode),
    # Boston, Mass.
    rule(rf"(?<=[a-z], )({alternatives(NEWS_STATES)})\.(?=,| [a-z]|\Z)", lambda match: NEWS_STATES[match[1]]),
    (OTHER_STATES, lambda match: "Louisiana" if match[1] else "Maryland" if match[2] else "Oklahoma"),
    rule(r"(?<!\w)([A-Za-z]):((?:\\[\w.-]*)+)(?<!\.)", lambda match: f"{match[1].upper()} colon {_named(match[2])}"),
    rule(r"(?<![^\s\"'(\[,:;])~?(?:/[A-Za-z_.][\w.-]*){1,20}/?(?<!\.)(?!\w)", lambda match: _named(match[0])),
    rule(r"(?<=[A-Za-z\d])_(?=[A-Za-z\d])", " underscore "),
    rule(r"(?<![\w.@])@(?=[A-Za-z]\w)", "at "),
    rule(r"(?<![\w&#])#(?=[A-Za-z]{2})", "hashtag "),
)
