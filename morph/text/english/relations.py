"""Signs between numbers: arithmetic and sizes; ranges, ratios, scores, verses, and slashes that are no fractions."""

import re

from ..lists import alternatives_of, table
from .letters import spell
from .numerals import in_pairs, ordinal, power
from .rules import Rule, alternatives, rule, text_before

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
ROOTS = {"√": "the square root of ", "∛": "the cube root of "}
LENGTHS = "mm|cm|m|km|ft|feet|foot|in|inch|inches|pixels|px"
MEASURED = re.compile(rf"[\d.,]+(?: ?× ?[\d.,]+)?(?: ?(?:{LENGTHS})\b| ?[\"'])")  # 10 × 15 cm
SCREEN = re.compile(r"(?<![\w.,])(\d{3,4}) ?[x×] ?(\d{3,4})(?![\w.])")  # 1920x1080
TIMES = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d+)?)[x×](?![\w'/-]| ?[-+=<>^*)])")  # 3x faster
COMPARED = r"(?:(?<=[\d)%A-Z])|(?<=\b[a-z]))"  # "x > 5", but "a length > 5" has more than 5
OPERAND = r"(?<=[\w)%.°∞])"
NEXT = r"(?=[\w(+\-√π∞$£€.])"
SIGNS = table("relations.signs")
COMPARISON = re.compile(
    rf"{COMPARED} ?(>=|<=|(?<![=<>-])[<>](?![=<>])|[≥≤]) ?"
    r"(?=[$£€(+-]?\d|[A-Za-z]\b(?!')|[π∞])"
)
ALONE_SAID = table("relations.alone_said")
CONSTANTS = {"∞": "infinity", "π": "pi"}
GRADES = {"+": "plus", "-": "minus"}


def _exponent(sign: str, number: str) -> str:
    return f"minus {number}" if sign == "-" else number


def _size(match: re.Match[str]) -> str:
    """Return "4 by" for 4x6, and for 4 × 6 cm, which is a size."""
    by = match[2] in "xX" or MEASURED.match(match.string, match.end())
    return f"{match[1]} {'by' if by else 'times'} "


ARITHMETIC: tuple[Rule, ...] = (
    rule(r"(?<![\w~≈])[~≈] ?(?=[$£€]?\d)", "about "),
    rule(r"(?<![\w.,$£€])(\d{1,3}|[nkm])!(?=[)*/]| ?[=+×÷] ?| [-*/x] \d| is [\d(])", r"\1 factorial"),  # 5! = 120
    rule(r"(?<!\w)([A-GJ])#(?!\w)", lambda match: f"{spell(match[1])} sharp"),  # C#
    # an A+
    rule(r"(?<![\w-])([A-F])([+-])(?=[\s.,;:!?)\"']|\Z)(?! ?[\d=])", lambda match: f"{match[1]} {GRADES[match[2]]}"),
    # 1.5e-3
    rule(
        r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?)(\d{1,3})(?![\w.]\w|\w)",
        lambda match: f"{match[1]} times 10 to the power of {_exponent(match[2], match[3])}",
    ),
    rule(r"(?<=\d) ?[x×] ?(?=10(?:\^|²| squared| cubed| to the))", " times "),  # 3 x 10^8
    # 10^6, x^2
    rule(r"(?<=[\w)])\^\(?([+-]?)(\d+|[a-z])\)?", lambda match: power(_exponent(match[1], match[2]))),
    rule(r"([√∛]) ?\(?(?=[\w(])", lambda match: ROOTS[match[1]]),
    # 5 x 3 = 15 is a multiplication, 4x6 and 4 x 100 m are sizes and relays, 2x is twice.
    rule(rf"(?<![\w.])({NUMBER}) ?[x×*] ?(?={NUMBER}(?: ?[x×*] ?{NUMBER})* ?=)", r"\1 times "),
    (SCREEN, lambda match: f"{in_pairs(match[1])} by {in_pairs(match[2])}"),
    rule(rf"(?<![\w.,])(?!0x)({NUMBER}) ?([xX×]) ?(?={NUMBER})", _size),
    # 10 cm × 15 cm
    rule(r"(?:(?<=[cm]m)|(?<=[\d ]m)|(?<=ft)|(?<=in)|(?<=[\"'])) ?[x×] ?(?=\d)", " by "),
    rule(r"(?<![\w.,])(\d{1,2})x/(?=(?:day|week|month|year)\b)", r"\1 times a "),
    (TIMES, lambda match: f"{match[1]} time{'' if match[1] == '1' else 's'}"),
    rule(rf"{COMPARED} ?(?<!\*)\*(?!\*) ?(?=[\d(]|[a-z]\b)", " times "),
    rule(r"(?<=\d) / (?=\d)", " divided by "),
    rule(r"(?<=[\d)]) - (?=\d)(?=[\d.,]+(?: [-+*/x] [\d.,]+)*(?: ?=| is \d))", " minus "),
    rule(rf"(?<![\w.,/:-])({NUMBER}|[a-z]) ?- ?(?=(?:{NUMBER}|[a-z]) ?=)", r"\1 minus "),
    rule(rf"{OPERAND}( ?)(!=|(?<![=<>-])=(?![=<>])|[×÷≠≈±])\1{NEXT}", lambda match: f" {SIGNS[match[2]]} "),
    rule(r"(?<=equals )([1-9])(\d{3})\b(?![.,:-]\d)", r"\1,\2"),  # 2^10 = 1024 is no year
    (COMPARISON, lambda match: f" {SIGNS[match[1]]} "),
    rule(r"(?<![\w<>=-])(>=|<=|[<>≥≤±]) ?(?=[$£€]?\d)", lambda match: ALONE_SAID[match[1]] + " "),  # < 5 minutes
    rule(r"(?<=\d) ?‰", " per mille"),
    rule("[∞π]", lambda match: CONSTANTS[match[0]]),
)


# 7/10 in a test, 8/10; 4/5 stars, 4.5/5; got 3/4
OUT_OF = re.compile(
    r"(?<![\w./$£€])(?<!\d )(?:(\d{1,3}(?:\.\d)?)/(10|100)"
    r"(?![\w/-]|\.\d| (?:of (?:an?|the)|inch|mile|cup|second)\b)|(\d)/(5)(?= (?:stars?|rating)\b)|"
    r"(\d\.\d)/(\d)(?![\w/]|\.\d))|(?:(?<=scored )|(?<=got ))(\d{1,3})/(\d{1,3})(?![\w/]| of | cup| inch)"
)
SCORED = alternatives_of("relations.scored")
# odds of 5/1, the 10/1 favourite
SHOT = re.compile(
    r"(?i)(\bodds(?: \w+)? |\bpriced at )?(?<![\w./$])(\d{1,3})/([1-9]\d?)\b"
    r"(?(1)(?!/)|(?=(?: on)? (?:odds|shot|chance|outsider|favou?rite|underdog)\b))"
)
COUNT = r"\d{1,4}(?:,\d{3})*(?:\.\d+)?"
RANGE = re.compile(
    rf"(?<![\w.,:/+°-])({COUNT}) ?- ?({COUNT})(?![\w-]*-\d|/\d|:\d|[.,]\d|\d)(?! ?=)"
    r"(?P<order> (?:punch|finish|record|start|loss|defeat|count|draw|win|victory|lead)\b)?"
    r"(?P<odds> (?:odds|shot|chance|outsider|favorite|underdog)\b)?"
)
ASPECTS = frozenset(("16:9", "4:3", "21:9", "16:10", "32:9"))
RATIO_WORDS = re.compile(r"(?i)\b(?:ratios?|scale|odds|mix|mixed|diluted|proportions?|outnumbered)\b")
TIME_WORDS = re.compile(r"(?i) ?(?:[ap]\.?m\b|o'clock)")
BOOKS = alternatives_of("relations.books")
NUMBERED_BOOK = re.compile(r"\b([123]) (?=(?:Corinthians|Samuel|Kings|Chronicles|Thessalonians|Timothy|Peter|John) \d)")
SHORT_BOOKS = table("relations.short_books")


def _shares(match: re.Match[str]) -> str:
    """Return two parts of a hundred, or two equal numbers, as two numbers: 60/40 and 20/20 are no fractions."""
    high, low = int(match[1]), int(match[2])
    return f"{match[1]} {match[2]}" if high + low == 100 or high == low else match[0]


def _pressure(match: re.Match[str]) -> str:
    high, low = match.groups()
    return f"{in_pairs(high)} over {in_pairs(low)}" if int(high) > int(low) else match[0]


def _out_of(match: re.Match[str]) -> str:
    """Return a score on a scale: 7/10 "7 out of 10"; 1/10, and scores above the scale, stay fractions."""
    count, whole = (group for group in match.groups() if group)
    return f"{count} out of {whole}" if 1 < float(count) <= int(whole) else match[0]


def _sets(match: re.Match[str]) -> str:
    """Return the sets of a match side by side, 6-4, 3-6; a row of rising numbers is one of ranges: pages 1-3, 5-7."""
    games = [[int(part) for part in one.split("-")] for one in re.findall(r"\d+-\d+", match[0])]
    return match[0].replace("-", " ") if any(left > right for left, right in games) else match[0]


def _range(match: re.Match[str]) -> str:
    """Return "2 to 3" for 2-3; two numbers that do not rise are a score, said side by side: 6-4."""
    low, high = (float(number.replace(",", "")) for number in match.groups()[:2])
    if match[1].startswith("0") and len(match[1]) > 1 and "." not in match[1]:
        return match[0]
    between = " to " if match["odds"] else " "
    if (low < high or (low, high) == (9, 5)) and not match["order"]:  # from nine to five
        between = " and " if text_before(match, 8).lower() == "between " else " to "
    return f"{match[1]}{between}{match[2]}{match['order'] or ''}{match['odds'] or ''}"


def _ratio(match: re.Match[str]) -> str:
    """Return "3 to 1" for 3:1, "16 by 9" for a screen; a possible time of the day stays, unless a word excludes it."""
    left, right = match[1], match[3]
    is_time = len(right) == 2 and int(left) < 25 and int(right) < 60 and not match[2]
    is_screen = f"{left}:{right}" in ASPECTS
    around = match.string[max(0, match.start() - 12) : match.end() + 16]
    if is_time and not is_screen and not RATIO_WORDS.search(around):
        return match[0]
    if TIME_WORDS.match(match.string, match.end()):
        return match[0]
    return f"{left} {'by' if is_screen else 'to'} {right}"


def _verse(match: re.Match[str]) -> str:
    book, chapter, verse, last = match.groups()
    return f"{book} {chapter} verse {verse}" if last is None else f"{book} {chapter} verses {verse} to {last}"


RULES: tuple[Rule, ...] = (
    rule(r"(?<![\w.,/-])(\d{1,2})-(?=\d{1,2}/\d{1,2}(?![\w/]|[.,]\d))", r"\1 "),  # 1-1/2 cups
    rule(r"(?<![\w./])(\d{1,2}/\d{1,2})(?:rd|th)s?\b", r"\1"),  # 2/3rds
    rule(r"(?<![\d/])(\d{1,2}/\d{1,2})-(?=[a-z])", r"\1 "),  # 1/4-inch
    rule(r"(?<![\w./$])(\d{1,2})/(2|4|8|16)(?= (?:time|signature)\b)", r"\1 \2"),  # 3/4 time
    rule(r"(?<![\w./$])20/(\d{2,3})(?= (?:vision|eyesight)\b)", r"20 \1"),  # 20/200 vision
    rule(r"(?<![\w./$£€])(\d\d)/(\d\d)(?![\w/]|\.\d)(?<!10/10)", _shares),  # 50/50, 20/20
    # 120/80
    rule(r"(?<![\w./$£€])([89]\d|1\d\d|2[0-4]\d)/([4-9]\d|1[0-3]\d)(?![\w/]|\.\d)", _pressure),
    (OUT_OF, _out_of),
    (NUMBERED_BOOK, lambda match: f"{ordinal(int(match[1])).capitalize()} "),  # 1 Corinthians 13:4
    rule(rf"\b({BOOKS}) (\d{{1,3}}):(\d{{1,3}})(?:-(\d{{1,3}}))?(?![\d:])", _verse),
    rule(r"(?<![\w.,:/+-])\d{1,2}-\d{1,2}(?:(?:, | and |, and )\d{1,2}-\d{1,2}){1,6}(?![\w/-]|[.,]\d)", _sets),
    rule(rf"(?i)\b({SCORED}) (\d{{1,3}})[-:](\d{{1,3}})\b", r"\1 \2 to \3"),
    (SHOT, lambda match: f"{match[1] or ''}{match[2]} to {match[3]}"),
    rule(r"(?<![\w./$£€])([1-9]\d\d)/(\d)(?![\w/]|\.\d)", r"\1 for \2"),  # 245/6
    rule(r"(?<![\w:.,/])(\d{1,4})( ?):\2(\d{1,3}(?:,\d{3})+|\d{1,7})(?![\w:/]|[.,-]\d)", _ratio),
    # 4-4-2
    rule(r"(?<![\w.,:/+-])\d{1,2}(?:-\d{1,2}){2,4}(?![\w/-]|[.,]\d)", lambda match: match[0].replace("-", " ")),
)
# Behind prices and dates, which may have hyphens too.
RANGES: tuple[Rule, ...] = (
    # 10%-15%, 5kg-10kg, 18th-19th
    rule(r"(?<=\d)( ?(?:%|°[CF]?|kg|km|cm|mm|m|g|ft|lbs?|oz|L|l|ml|GB|MB|mph|st|nd|rd|th)) ?- ?(?=\d)", r"\1 to "),
    (RANGE, _range),
)
# Before titles: Gen. is also a general.
BOOK_IN_WHOLE = rule(rf"\b({alternatives(SHORT_BOOKS)})\.? (?=\d{{1,3}}:\d)", lambda match: f"{SHORT_BOOKS[match[1]]} ")
