"""Abbreviations with dots and slashes, addresses, and paths and web addresses, whose signs are spoken."""

import re

from ..lists import alternatives_of, table, word_set
from .letters import spell
from .numerals import in_pairs
from .rules import Rule, alternatives, like, rule, text_before

BEFORE_NUMBERS = table("short_forms.before_numbers")
# Abbreviations that are no words and need no dot.
PLAIN_BEFORE_NUMBERS = "nos|pp|paras?|sect|qty|vols?|figs?|eqs?|ext|apt|rm|hwy|rte|approx|bldg|ste|ver"
TITLES = table("short_forms.titles")
# British ones have no dot: Mr Lee.
TITLE = re.compile(rf"\b(?:({alternatives(TITLES)})\. |(Mr|Mrs|Ms|Dr|Prof|Mt|Sgt|Capt|St) )(?=[A-Z])")
STREETS = table("short_forms.streets")
# Behind a name: Main St., 5th Ave, 12 Oak Tree Rd. Apt. 4; St. Paul and Dr. Lee have another word in front, or none.
BEHIND_STREET = r"(?= ?(?:[a-z\d,;:)\"']|[NSEW]\b|(?:Apt|Suite|Ste|Unit|and|near)\b|\Z))"
ADDRESS = re.compile(rf"\b(\d+[A-Z]? (?:[A-Z][a-z]+ |\d+(?:st|nd|rd|th) ){{1,3}})({alternatives(STREETS)})\b\.?")
DIRECTIONS = table("short_forms.directions")
DIRECTION = re.compile(
    rf"\b({'|'.join(DIRECTIONS)})\b\.? (?=(?:[A-Z][a-z]+ |\d+(?:st|nd|rd|th) ){{1,3}}"
    rf"(?:{alternatives({*STREETS, *STREETS.values()})})\b)"
)
NO_STREETS = "The|An?|My|Our|His|Her|Your|Their|This|That|Dear|Ask|See|Call|And|But"
STREET_NAME = re.compile(rf"(?:\b(?!(?:{NO_STREETS})\b)[A-Z][a-z']+|\d(?:st|nd|rd|th)) \Z")
LONGEST_NAME = 24
ANYWHERE = table("short_forms.anywhere")
INSIDE = table("short_forms.inside")
WHOLE = ANYWHERE | INSIDE
SLASHES = {"w/o": "without", "w/": "with", "c/o": "care of", "b/c": "because", "n/a": "not applicable"}


def _whole(match: re.Match[str]) -> str:
    return like(match[1], WHOLE[match[1].lower()])


def _street(match: re.Match[str]) -> str:
    named = STREET_NAME.search(text_before(match, LONGEST_NAME))
    return STREETS[match[1]] if named else match[0]


def _slash(match: re.Match[str]) -> str:
    space = "" if match[1] or match.string[match.end()] == " " else " "
    return like(match[0], SLASHES[match[0].lower()]) + space


def _before_number(match: re.Match[str]) -> str:
    """Return "number" for No.; a unit after a number stays: "5 min. 30 sec."."""
    word = match[1].lower()
    if word in ("min", "sec") and text_before(match, 2).strip().isdecimal():
        return match[0]
    return like(match[1], BEFORE_NUMBERS[word]) + " "


RULES: tuple[Rule, ...] = (
    (DIRECTION, lambda match: DIRECTIONS[match[1]] + " "),  # 350 W 42nd St.
    (ADDRESS, lambda match: match[1] + STREETS[match[2]]),  # 12 Main St.
    # on Main St. and 5th Ave
    rule(rf"(?<=[a-z] )({alternatives(STREETS)})\b(?:\.{BEHIND_STREET}|(?=[.,;]| [a-z\d]|\Z))", _street),
    (TITLE, lambda match: TITLES[match[1] or match[2]] + " "),  # Prof. Lee, St. Paul
    # b. 1950
    rule(r"(?<![\w.])([bd])\. ?(?=(?:1\d|20)\d\d\b)", lambda match: "born " if match[1] == "b" else "died "),
    # No. 5, Eq. 5
    rule(rf"(?<![\w.-])(?i:({alternatives(BEFORE_NUMBERS)}))\. ?(?=[\d#~]|-\d|[A-Z]\d|[IVXL]{{2,}}\b)", _before_number),
    rule(rf"(?<![\w.-])(?i:({PLAIN_BEFORE_NUMBERS})) (?=\d)", _before_number),  # Fig 3
    # e.g. this, Smith Inc. and others
    rule(rf"(?<![\w.])(?i:({alternatives(ANYWHERE)}))(?!\w)", _whole),
    rule(rf"(?<![\w.])(?<!\d )(?i:({alternatives(INSIDE)}))(?= [a-z\d])", _whole),  # esp. here
    rule(r"\b([Nn])o\. (?=of\b)", r"\1umber "),
    rule(r"(?<![\w/.:])(?i:(w/o|c/o|b/c|n/a)\b|(w/)(?=[ \w]))(?!/)", _slash),  # w/ milk, w/o sugar
)


PORT = re.compile(
    r"(?<![\w.-])(localhost|(?:\d{1,3}\.){3}\d{1,3}|(?:[\w-]+\.)+[a-z]{2,10}):(\d{2,4})(?!\w)"
)  # localhost:8080
SIGN_NAMES = table("short_forms.sign_names")
FILE = re.compile(rf"(?<![\w./@])([\w-]{{1,60}})\.({alternatives_of('short_forms.files')})(?![\w/]|\.\w)")
READ_AS_WORDS = word_set("short_forms.read_as_words")
PATH_WORDS = {"usr": "user", "tmp": "temp", "etc": "ee tee see"}
PARTS = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z\d]")
KEYS = {"ctrl": "control", "cmd": "command"}
# Without a path: only endings that are no words, since "the end.then" is no page.
ENDING = re.compile(r"(?<![\w.])\.(com|org|net|NET|edu|gov|pdf|exe|zip|csv|txt|jpg)\b(?!\.\w)")  # a .com site
DOMAIN = re.compile(rf"(?<![\w@./-])((?:[\w-]+\.)+(?:{alternatives_of('short_forms.domains')}))(?![\w/]|\.\w)")
UNSPEAKABLE = re.compile("[b-df-hj-np-tv-xz]{2,4}")
SPELLED_ENDS = word_set("short_forms.spelled_ends")
# States after a town: Portland, OR.
STATES = table("short_forms.states")
NEWS_STATES = table("short_forms.news_states")
# N. Korea, NE winds; British codes after a town: SW1Y 4LB
PARTS_OF_COUNTRIES = re.compile(rf"\b([NSEW])\. (?=(?:{alternatives_of('short_forms.parts_of_countries')})\b)")
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


ADDRESSES: tuple[Rule, ...] = (
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
