"""Normalize words in capitals: spoken as words ("Nasa"), spelled ("bee bee see"), or emphasized."""

# Every voice tried reads "bee bee see" correctly, hardly any "B B C" (demo voice).

import re
from collections.abc import Iterable

from ..lists import alternatives_of, table, word_set
from .numerals import plural
from .rules import Rule, alternatives, rule, text_before

LETTERS = table("letters.letters")
WORD = re.compile(r"[A-Za-z]+")
CAPITALS = re.compile(r"\b([A-Z]+)((?:['\u2019][A-Z]+)+)\b|\b[A-Z]{2,}\b")
VOWELS = frozenset("AEIOUY")
# "LET US OUT!" the children screamed.
SHOUT = re.compile(r"\b[A-Z]+(?:'[A-Z]+)?(?:,? [A-Z]+(?:'[A-Z]+)?\b){2,}")
LONGEST_SPELLED = 3
SHORTEST_SHOUT = 5  # letters: shorter words in capitals may all be names, as in "The US, UK and EU"
SHORTEST_OF_THREE = 4  # letters, where three in a row are in capitals
# Words of two and three letters that are in capitals for stress ("I do NOT agree"), not spelled out.
SHORT_WORDS = word_set("letters.short_words")
SHORT_SOUNDS = word_set("letters.short_sounds")
# Short words that are names in capitals, with the contexts that make them stressed words. \0 is the word.
PHRASE_END = r"(?=\s*(?:[.!?,;:)\"]|\Z))"
BEFORE_US = alternatives_of("letters.before_us")
# Verbs before the pronoun, if the next word cannot follow the country: "They told US the truth."
TOLD_US = alternatives_of("letters.told_us")
STRESSED = {
    # "Tell US!", "It is good for US.", but "the US", "US troops"
    "US": re.compile(
        rf"(?i)\b(?:{BEFORE_US}) \0"
        rf"(?:{PHRASE_END}|(?= (?:now|all|what|how|why|when|where|that|to|a|about|again|too|both|go|do)\b))|"
        rf"\b(?:{BEFORE_US}|{TOLD_US}) \0(?:{PHRASE_END}|(?= (?:an?|the|this|that|these|those|all|any|every|no|some|"
        r"(?:any|every|no|some)(?:thing|body|where)|now|what|how|why|when|where|who|if|to|again|too|both|more|alone|"
        r"so|out|up|down|back|off|away|by|here|there|your|my|his|her|their)\b))"
    ),
    # "Do IT!", "This is IT.", but "the IT department", "She works in IT."
    "IT": re.compile(
        r"(?:(?i:\b(?:do|did|does|done|doing|stop|love|hate|get|got|want|mean|made|said|believe|try|buy|that's|it's|"
        rf"(?:this|that|here|what|where|who) (?:is|was)|is (?:this|that)) )|\b[A-Z]{{3,}} )\0{PHRASE_END}"
    ),
    "LED": re.compile(r"(?i)\b(?:he|she|it|we|they|who|that|which) \0"),
    "AM": re.compile(r"\bI \0"),
    "AD": re.compile(r"(?i)\b(?:an?|the|this|that|every|each|my|our|your) \0"),
}
LOUD_US = re.compile(rf"(?i)\b(?:{BEFORE_US}) \0")  # LET US OUT, but US SENATE
# Words in capitals that are names only here.
NAMED = {
    "WHO": re.compile(
        r"\b[Tt]he \0|'s \0(?= )|\(\0\)|\b[A-Z]{2,}, \0|\0(?= and [A-Z]{2})|"
        r"\0(?='s\b| (?:report|guideline|official|spokes|expert|data|estimate|declar))"
    ),
    "ACT": re.compile(r"\0(?= (?:scores?|exam|test|prep))"),
    "SAT": re.compile(r"\b(?:[Tt]he|an|[Hh]er|[Hh]is|[Mm]y|[Yy]our) \0|\0(?= (?:score|exam|test|prep))"),
}
LONGEST_NEIGHBOUR = 16  # characters of a word's context on each side
READ_AS_WORDS = word_set("letters.read_as_words")
# Short forms that are spelled, although they have vowels: those of two and three letters also among loud words.
SPELLED = word_set("letters.spelled")
SAID_AS = table("letters.said_as")
# Names with small letters among their capitals.
MIXED = table("letters.mixed")
# Beginnings and endings of pronounceable short words: ISBN and HDMI are not.
BEGINNING = re.compile(
    r"[AEIOUY]|[B-DF-HJ-NP-TV-XZ][AEIOUY]|[BCFGKPSL]L|[BCDFGKPTW]R|[CGPRSTW]H|S[CKMNPQTVW]|[DT]W|[KG]N|PS|QU|TS|CZ"
)
ENDING = re.compile(
    r"(?:[AEIOUY]|[AEIOUY][B-DF-HJ-NP-TV-XZ]|([B-DFGLMNPRTZ])\1|[CGPST]H|[BCDFGKLMNPRSTW]S|[CFLNPRSX]T|GHT|[LNR]D|"
    r"[CLNRSW]K|L[BCFMP]|M[BNP]|NG|NX|GN|R[BCFGLMNPV]|S[CMP]|W[LN]|TZ)\Z"
)
LONGEST_DOUBTED = 5  # letters: longer words in capitals are nearly always words


def spell(word: Iterable[str]) -> str:
    return " ".join(LETTERS[letter] for letter in word)


def lower_capitals(sentence: str) -> str:
    """Write words in capitals as they are spoken: ``STOP`` "stop", ``NASA`` "Nasa", ``BBC`` "bee bee see"."""
    # If most words are in capitals, or three in a row with one that is no name, short ones are words too.
    words = [word for word in WORD.findall(sentence) if len(word) > 1]
    shouted = [word for word in words if word.isupper()]
    common = len(shouted) == len(words) or not _common(shouted).isdisjoint(SHORT_WORDS)
    loud = common and len(shouted) > 1 and 2 * len(shouted) > len(words) and max(map(len, shouted)) >= SHORTEST_SHOUT
    if not loud:
        sentence = SHOUT.sub(_say_shout, sentence)
    return CAPITALS.sub(lambda match: _say_capitals(match, loud), sentence)


def _common(words: Iterable[str]) -> set[str]:
    """Return words in lower case, without those that are also names in capitals, as US and IT."""
    return {word.lower() for word in words if len(word) > 1 and word not in STRESSED}


def _say_shout(match: re.Match[str]) -> str:
    words = _common(WORD.findall(match[0]))
    said = any(len(word) >= SHORTEST_OF_THREE and _is_said(word.upper()) for word in words)
    if words.isdisjoint(SHORT_WORDS) and ("," in match[0] or not said):
        return match[0]
    return CAPITALS.sub(lambda word: _say_capitals(word, loud=True), match[0])


def _say_capitals(match: re.Match[str], loud: bool) -> str:
    word, ending = match[1] or match[0], match[2] or ""
    if ending and ending[1:] != "S":  # a short form: DON'T, I'LL
        return ("I" if word == "I" else word.lower()) + ending.lower()
    return _say_word(word, loud, match) + ending.lower()


def _say_word(word: str, loud: bool, match: re.Match[str]) -> str:
    if word in SAID_AS:
        return SAID_AS[word]
    if loud and word == "US":
        around = _around(match)
        return "us" if LOUD_US.search(around) or STRESSED["US"].search(around) else spell(word)
    if word in READ_AS_WORDS or (word.lower() in SHORT_WORDS and (loud or not _is_name(word, match))):
        return word.lower()
    if loud and len(word) == 2 and word.lower() not in SHORT_SOUNDS:
        return spell(word)  # I LOVE NY
    if word not in SPELLED and not VOWELS.isdisjoint(word):
        if loud:
            return word.lower()
        if len(word) > LONGEST_SPELLED and _can_be_said(word):
            return word.capitalize()
    return spell(word) if len(word) > 1 else word


def _is_name(word: str, match: re.Match[str]) -> bool:
    if word in STRESSED:
        return STRESSED[word].search(_around(match)) is None
    return word in NAMED and NAMED[word].search(_around(match)) is not None


def _around(match: re.Match[str]) -> str:
    behind = match.string[match.end() : match.end() + LONGEST_NEIGHBOUR]
    return f"{text_before(match, LONGEST_NEIGHBOUR)}\0{behind}"


def _is_said(word: str) -> bool:
    return word not in SPELLED and not VOWELS.isdisjoint(word) and _can_be_said(word)


def _can_be_said(word: str) -> bool:
    return len(word) > LONGEST_DOUBTED or bool(BEGINNING.match(word) and ENDING.search(word))


def _spell_dotted(match: re.Match[str]) -> str:
    return spell(char for char in match[0].upper() if char.isalpha())


def _joined(match: re.Match[str]) -> str:
    return " ".join(spell(word) if len(word) == 1 else word for word in match.groups())


def _compound(match: re.Match[str]) -> str:
    """Return names with "&": Q&A "Q and A", AT&T "ay tee and tee", salt&pepper "salt and pepper"."""
    if match[1] is None:
        return " and "
    short = min(len(match[1]), len(match[2])) == 1 and max(len(match[1]), len(match[2])) <= LONGEST_SPELLED
    if not short or len(match[0]) == len("Q&A"):
        return f"{match[1]} and {match[2]}"
    return f"{spell(match[1])} and {spell(match[2])}"


RULES: tuple[Rule, ...] = (
    rule(r"\b(?![AP]\.M\.)(?:[A-Z]\.){2,}", _spell_dotted),  # The U.S. is big; not the time of a day
    rule(r"\b(?:Ph\. ?D|D\.Phil|[BM]\.Sc|Ed\.D|Psy\.D|LL\.[BM])\.", _spell_dotted),  # She has a Ph.D. in law.
    rule(r"\b([A-Z]+)&([A-Z]+)\b|(?<=[A-Za-z])&(?=[A-Za-z])", _compound),
    rule(r"\b([A-Z]{1,5})/([A-Z]{1,5})\b", _joined),  # TCP/IP
    rule(r"\b([A-Z]{2,})s\b", lambda match: plural(_say_word(match[1], False, match))),  # CEOs, TVs
    # a PhD, the pH
    rule(rf"(?<![\w.@/-])(?:{alternatives(MIXED)})(?![\w@/])", lambda match: MIXED[match[0]]),
)
