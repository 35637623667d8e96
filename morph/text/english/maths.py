"""Signs of arithmetic between numbers and single letters: 5 x 3 = 15, 10^6, x > 5, and the size 4x6."""

import re

from ..lists import table
from .letters import spell
from .rules import Rule, rule
from .words import in_pairs

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
POWERS = {"2": " squared", "3": " cubed"}
FACTORIAL = re.compile(
    r"(?<![\w.,$\u00a3\u20ac])(\d{1,3}|[nkm])!(?=[)*/]| ?[=+\u00d7\u00f7] ?| [-*/x] \d| is [\d(])"
)  # 5! = 120
ROOTS = {"\u221a": "the square root of ", "\u221b": "the cube root of "}
LENGTHS = "mm|cm|m|km|ft|feet|foot|in|inch|inches|pixels|px"
MEASURED = re.compile(rf"[\d.,]+(?: ?\u00d7 ?[\d.,]+)?(?: ?(?:{LENGTHS})\b| ?[\"'])")  # 10 \u00d7 15 cm
SCREEN = re.compile(r"(?<![\w.,])(\d{3,4}) ?[x\u00d7] ?(\d{3,4})(?![\w.])")  # 1920x1080
TIMES = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d+)?)[x\u00d7](?![\w'/-]| ?[-+=<>^*)])")  # 3x faster
COMPARED = r"(?:(?<=[\d)%A-Z])|(?<=\b[a-z]))"  # "x > 5", but "a length > 5" has more than 5
OPERAND = r"(?<=[\w)%.\u00b0\u221e])"
NEXT = r"(?=[\w(+\-\u221a\u03c0\u221e$\u00a3\u20ac.])"
SIGNS = table("maths.signs")
EQUATION = re.compile(rf"{OPERAND}( ?)(!=|(?<![=<>-])=(?![=<>])|[\u00d7\u00f7\u2260\u2248\u00b1])\1{NEXT}")
COMPARISON = re.compile(
    rf"{COMPARED} ?(>=|<=|(?<![=<>-])[<>](?![=<>])|[\u2265\u2264]) ?"
    r"(?=[$\u00a3\u20ac(+-]?\d|[A-Za-z]\b(?!')|[\u03c0\u221e])"
)
ALONE = re.compile(r"(?<![\w<>=-])(>=|<=|[<>\u2265\u2264\u00b1]) ?(?=[$\u00a3\u20ac]?\d)")  # < 5 minutes
ALONE_SAID = table("maths.alone_said")
CONSTANTS = {"\u221e": "infinity", "\u03c0": "pi"}
GRADE = re.compile(r"(?<![\w-])([A-F])([+-])(?=[\s.,;:!?)\"']|\Z)(?! ?[\d=])")
GRADES = {"+": "plus", "-": "minus"}


def _scientific(match: re.Match[str]) -> str:
    minus = "minus " if match[2] == "-" else ""
    return f"{match[1]} times 10 to the power of {minus}{match[3]}"


def _power(match: re.Match[str]) -> str:
    minus = "minus " if match[1] == "-" else ""
    if not minus and match[2] in POWERS:
        return POWERS[match[2]]
    return f" to the power of {minus}{match[2]}"


def _size(match: re.Match[str]) -> str:
    """Return "4 by" for 4x6, and for 4 \u00d7 6 cm, which is a size."""
    by = match[2] in "xX" or MEASURED.match(match.string, match.end())
    return f"{match[1]} {'by' if by else 'times'} "


RULES: tuple[Rule, ...] = (
    rule(r"(?<![\w~\u2248])[~\u2248] ?(?=[$\u00a3\u20ac]?\d)", "about "),
    (FACTORIAL, r"\1 factorial"),
    rule(r"(?<!\w)([A-Z])\+\+(?!\w)", r"\1 plus plus"),  # C++
    rule(r"(?<!\w)([A-GJ])#(?!\w)", lambda match: f"{spell(match[1])} sharp"),  # C#
    (GRADE, lambda match: f"{match[1]} {GRADES[match[2]]}"),  # an A+
    rule(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?)(\d{1,3})(?![\w.]\w|\w)", _scientific),  # 1.5e-3
    rule(r"(?<=\d) ?[x\u00d7] ?(?=10(?:\^|\u00b2| squared| cubed| to the))", " times "),  # 3 x 10^8
    rule(r"(?<=[\w)])\^\(?([+-]?)(\d+|[a-z])\)?", _power),  # 10^6, x^2
    rule(r"([\u221a\u221b]) ?\(?(?=[\w(])", lambda match: ROOTS[match[1]]),
    # 5 x 3 = 15 is a multiplication, 4x6 and 4 x 100 m are sizes and relays, 2x is twice.
    rule(rf"(?<![\w.])({NUMBER}) ?[x\u00d7*] ?(?={NUMBER}(?: ?[x\u00d7*] ?{NUMBER})* ?=)", r"\1 times "),
    (SCREEN, lambda match: f"{in_pairs(match[1])} by {in_pairs(match[2])}"),
    rule(rf"(?<![\w.,])(?!0x)({NUMBER}) ?([xX\u00d7]) ?(?={NUMBER})", _size),
    # 10 cm \u00d7 15 cm
    rule(r"(?:(?<=[cm]m)|(?<=[\d ]m)|(?<=ft)|(?<=in)|(?<=[\"'])) ?[x\u00d7] ?(?=\d)", " by "),
    rule(r"(?<![\w.,])(\d{1,2})x/(?=(?:day|week|month|year)\b)", r"\1 times a "),
    (TIMES, lambda match: f"{match[1]} time{'' if match[1] == '1' else 's'}"),
    rule(rf"{COMPARED} ?(?<!\*)\*(?!\*) ?(?=[\d(]|[a-z]\b)", " times "),
    rule(r"(?<=\d) / (?=\d)", " divided by "),
    rule(r"(?<=[\d)]) - (?=\d)(?=[\d.,]+(?: [-+*/x] [\d.,]+)*(?: ?=| is \d))", " minus "),
    rule(rf"(?<![\w.,/:-])({NUMBER}|[a-z]) ?- ?(?=(?:{NUMBER}|[a-z]) ?=)", r"\1 minus "),
    (EQUATION, lambda match: f" {SIGNS[match[2]]} "),
    rule(r"(?<=equals )([1-9])(\d{3})\b(?![.,:-]\d)", r"\1,\2"),  # 2^10 = 1024 is no year
    (COMPARISON, lambda match: f" {SIGNS[match[1]]} "),
    (ALONE, lambda match: ALONE_SAID[match[1]] + " "),
    rule(r"(?<=\d) ?\u2030", " per mille"),
    rule("[\u221e\u03c0]", lambda match: CONSTANTS[match[0]]),
)
