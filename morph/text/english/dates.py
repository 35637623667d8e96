"""Names of days and months, dates, years, decades, seasons and times of the day."""

import re

from ..lists import alternatives_of, table
from .numerals import TENS, in_pairs, ordinal, plural, small_number, spell_digits
from .rules import Rule, alternatives, rule

A_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
MONTHS = A_MONTH.split("|")
SHORT_MONTHS = {month[:3]: month for month in MONTHS} | {"Sept": "September"}
SHORT_DAYS = table("dates.short_days")
CALENDAR = SHORT_DAYS | SHORT_MONTHS
SHORT_MONTH = alternatives(set(SHORT_MONTHS) - {"May"})
SHORT_DAY = alternatives(SHORT_DAYS)
FULL_NAME = rf"{A_MONTH}|[MTWFS][a-z]{{2,5}}day"
SHORT_DAY_ALONE = re.compile(
    rf"\b(?:({SHORT_DAY})(?:\.(?=,? [A-Za-z\d])|(?=,? (?:\d|(?:{A_MONTH}|{alternatives(SHORT_MONTHS)})\b)))|"
    r"(Mon|Tues?|Wed|Thur?s?|Fri)\.(?=\s*\Z|[,;:)])|"
    r"(?<=Sat\. and )(Sun)\b\.?)"
)
ALWAYS_OPEN = re.compile(r"\b24[/x]7(?P<year>/365)?\b")
NINE_ELEVEN = re.compile(
    r"(?<![\w./-])9-11(?= (?:attacks?|terror|conspiracy|commission|memorial|hijack))|(?<![\w./])9/11(?![\w/]| of\b)"
)
AGES = re.compile(r"\b((?i:under|over))[- ]?([1-9]\d)s\b(?!-)")  # under-18s
# the 19th c., on the 2nd fl.
ORDINAL_NOUNS = table("dates.ordinal_nouns")
ORDINAL_NOUN = re.compile(
    r"(?<=\d(?:st|nd|rd|th)) (?:(c|cent)\.(?=[ ]?[a-z,;:)]| (?:AD|BC|CE|BCE)\b|\s*\Z)|(fl|ed|gen|qtr)\b\.?)"
)
# the 80s
SHORT_DECADE = re.compile(
    r"(?<![\w.,:$£€/-])'?([2-9])0'?s(?!\w|-(?!style|era|inspired|themed))(?! (?:timer|timeout|exposure)\b)"
)
ERA = re.compile(r"(?:(?<=\d)|(?<=century)) ?(AD|BC|CE|BCE)\b|\b(AD)(?= \d)")
ERAS = {"AD": "ay dee", "BC": "bee see", "CE": "see ee", "BCE": "bee see ee"}
BEFORE_DAY = rf"(?i:{alternatives_of('dates.before_day')}) "
# on 5/12
SHORT_DATE = re.compile(rf"\b({BEFORE_DAY})(1[0-2]|0?[1-9])/(3[01]|[12]\d|0?[1-9])(?![\w/-]|\.\d| of\b)")
# 9/11/01
EARLY_DATE = re.compile(r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(3[01]|[12]\d|0?[1-9])/0([1-9])(?![\w/-]|\.\d)")
# 2/29: nobody writes such fractions
SURE_DATE = re.compile(r"(?<![\w.,/$-])(?<!\d )(1[0-2]|[1-9])/(1[3-47-9]|2[1-36-9]|31)(?![\w/-]|\.\d| of\b| ?=)")
A_DAY = r"(3[01]|[12]\d|[1-9])(?:st|nd|rd|th)?"
MONTH_DAYS = re.compile(rf"\b({A_MONTH}) {A_DAY} ?- ?{A_DAY}(?![\w:-])")  # June 5-7
DAYS_MONTH = re.compile(rf"(?<![\w.,/-]){A_DAY} ?[-/] ?{A_DAY} ({A_MONTH})\b")  # 5-7 June
ISO_DATE = re.compile(r"(?<![\w.,/-])((?:19|20)\d\d)-(1[0-2]|0[1-9])-(3[01]|[12]\d|0[1-9])(?![\w/-])")
MONTH_OF_DAY = re.compile(rf"\b({A_MONTH.lower()})(?= (?:\w+ )?\w+(?:th|st|nd|rd)\b)")
# Times: 7-9 pm, 9:00-17:00; office hours, which cross noon: a 9-5 job
HALF_DAY = r" ?[ap]\.?m\b\.?"
TIME = rf"\d{{1,2}}(?::\d\d)?(?:{HALF_DAY})"
# at 10.30, the 10.30 train; not at 1.25 percent
EUROPEAN_TIME = re.compile(
    r"\b((?i:at|until|till) )([01]?\d|2[0-3])\.([0-5]\d)(?![\d%]|[.,:]\d| ?(?:%|[a-zA-Z°]{1,3}\b(?<!am)(?<!pm)"
    r"(?<!on)(?<!in)(?<!and)(?<!for)(?<!or)(?<!to)|percent|per|million|billion|dollars|euros|pounds|times|points?)\b)|"
    r"\b((?i:the|a) )([01]?\d|2[0-3])\.([0-5]\d)(?= (?:train|bus|flight|ferry|show|service|news|from|to)\b)"
)
# At 0600; 20:00 hrs, 0730 hours, at 1800 hours
ARMY_TIME = re.compile(
    r"(?i)(\b(?:at|by|before|after|until|till|from) )?(?<![\w:.,$-])([01]\d|2[0-3])(:?)([0-5]\d)"
    r"( ?(?:hours|hrs?|h)\b|\b(?!:| ?\d))"
)
DURATION = re.compile(
    r"(?<![\w.,:/-])(?:(\d{1,2}) ?h(?:rs?)?(?: ?([0-5]?\d) ?m(?:ins?)?)\b(?: ?([0-5]?\d) ?s(?:ec)?\b)?|"
    r"(\d{1,2})h(?=[\s.,;!?)]|\Z)|(\d{1,2})m(?:in)?(?: ([0-5]?\d)s\b|(?= ago\b)))"
)


def _span(match: re.Match[str]) -> str:
    return f"{CALENDAR[match[1]]} to {CALENDAR[match[2]]}"


def _calendar(match: re.Match[str]) -> str:
    return CALENDAR[match[match.lastindex or 1]]


def _season(match: re.Match[str]) -> str:
    year, start, end = match.groups()
    if int(end) != (int(start) + 1) % 100 and match[1] != match[3]:
        return match[0]
    return f"{in_pairs(year)} {small_number(int(end))}"


def _years(match: re.Match[str]) -> str:
    """Return a span of years; 2010-05 is a month, and 1200-800 is no span."""
    start, end = match.groups()
    if int(end) <= int(start[-len(end) :]):
        return match[0]
    return f"{in_pairs(start)} to {in_pairs(end)}"


def _decade(match: re.Match[str]) -> str:
    tens = int(match[2])
    return f"{small_number(int(match[1]))} {'tens' if tens == 1 else plural(TENS[tens - 2])}"


def _month_day(month: str, day: str) -> str:
    return f"{MONTHS[int(month) - 1]} {ordinal(int(day))}"


def _office_hours(match: re.Match[str]) -> str:
    start, end = int(match[2]), int(match[3])
    return f"{match[1]}{start} to {end}" if 12 >= start > end >= 1 else match[0]


def _minutes(minutes: str) -> str:
    return ("oh " if int(minutes) < 10 else "") + small_number(int(minutes))


def _split_time(match: re.Match[str]) -> str:
    minutes, seconds, parts = match.groups()
    return f"{small_number(int(minutes))} {_minutes(seconds)} point {spell_digits(parts)}"


def _army_time(match: re.Match[str]) -> str:
    """Return "oh six hundred" for 0600 where a time may be, "twenty hundred hours" for 20:00 hrs."""
    before, hour, colon, minutes, unit = match.groups()
    is_early = hour[0] == "0" and not colon
    if not (before and is_early) and not (unit and (colon or before or is_early)):
        return match[0]
    said = ("oh " if hour[0] == "0" else "") + small_number(int(hour))
    return f"{before or ''}{said} {'hundred' if minutes == '00' else _minutes(minutes)}{' hours' if unit else ''}"


def _short_duration(match: re.Match[str]) -> str:
    numbers = zip(match.groups(), 2 * ("hour", "minute", "second"), strict=False)
    return " ".join(
        f"{int(number)} {unit}{'' if int(number) == 1 else 's'}" for number, unit in numbers if int(number or 0)
    )


SHORT_NAMES: tuple[Rule, ...] = (
    rule(rf"\b({FULL_NAME})-(?=(?:{FULL_NAME})\b)", r"\1 to "),  # May-June, Monday-Friday
    rule(rf"\b({SHORT_MONTH})\.?-({SHORT_MONTH}|May)\b\.?(?!-)", _span),  # Jan-Mar
    rule(rf"\b({SHORT_DAY})\.?-({SHORT_DAY})\b\.?(?!-)", _span),  # Mon-Fri
    (SHORT_DAY_ALONE, _calendar),  # Mon., at 9; Fri, Jan 5
    # Jan. 5th; 5 Jan 2024
    rule(rf"\b({SHORT_MONTH})(?:\.|(?= \d)|(?<=\d [A-Z][a-z]{{2}})(?=[., ]|\Z))(?![\w.])", _calendar),
)
RULES: tuple[Rule, ...] = (
    (ALWAYS_OPEN, lambda match: "twenty four seven" + (" three sixty five" if match["year"] else "")),
    (NINE_ELEVEN, "nine eleven"),
    (AGES, lambda match: f"{match[1]} {plural(small_number(int(match[2])))}"),
    rule(r"(?<![\w.,:$£€/'-])'?00'?s\b", "two thousands"),  # the '00s
    (ORDINAL_NOUN, lambda match: f" {ORDINAL_NOUNS[match[1] or match[2]]}"),
    rule(r"(?<![\w.,$£€])(1[1-9]|20)([1-9])0'?s\b", _decade),  # 2010s, 1810s
    # the 1900s
    rule(r"(?<![\w.,$£€])(1[1-9])00'?s\b", lambda match: f"{small_number(int(match[1]))} hundreds"),
    (SHORT_DECADE, lambda match: plural(TENS[int(match[1]) - 2])),
    rule(r"(?<=[a-z])-(?=(?:1[1-9]\d\d|20\d\d)\b(?![-/.]\d))", " "),  # pre-1990
    rule(r"(?<![\w'])'(0\d)(?![\w'])", lambda match: f"oh {small_number(int(match[1]))}"),  # the class of '09
    (MONTH_DAYS, lambda match: f"{match[1]} {ordinal(int(match[2]))} to {ordinal(int(match[3]))}"),
    (DAYS_MONTH, lambda match: f"the {ordinal(int(match[1]))} to the {ordinal(int(match[2]))} of {match[3]}"),
    (ERA, lambda match: " " + ERAS[match[1]] if match[1] else ERAS[match[2]]),
    (ISO_DATE, lambda match: f"{MONTHS[int(match[2]) - 1]} {ordinal(int(match[3]))}, {in_pairs(match[1])}"),
    rule(r"(?<![\w./-])((?:19|20)(\d\d))/(\d\d)(?![\w/-]|\.\d)", _season),  # 2019/20
    # 1914-18, 1914-1918
    rule(r"(?<![\w.,/$£€-])(1[1-9]\d\d|20\d\d)-(\d{4}|\d\d)(?![\w/-]|[.,:]\d)", _years),
    (SHORT_DATE, lambda match: match[1] + _month_day(match[2], match[3])),
    (EARLY_DATE, lambda match: f"{_month_day(match[1], match[2])}, two thousand {small_number(int(match[3]))}"),
    (SURE_DATE, lambda match: _month_day(match[1], match[2])),
    rule(r"(?<![\w:.,])(?:00|24):00(?![:\d.]| hours\b)", "midnight"),
    # Race times (3:43.13), military times (0600), and durations with letters (1h 20m)
    rule(r"(?<![\w:.,])(\d{1,2}):([0-5]\d)\.(\d{1,3})(?![\w:])(?! ?[ap]\.?m\b)", _split_time),
    (ARMY_TIME, _army_time),
    (DURATION, _short_duration),
    rule(r"(?<![\w:.,])(\d{1,2}):([0-5]\d):([0-5]\d)(?: (?:hours|hrs|h)\b)", _short_duration),
    rule(r"(?<![\w:.,])([01]?\d|2[0-3])h([0-5]\d)\b", lambda match: f"{match[1]} {_minutes(match[2])}"),
    (EUROPEAN_TIME, lambda match: match[0].replace(".", ":")),
    rule(rf"(?i)(?<![\w:.,/$-])(\d{{1,2}}(?::\d\d)?(?:{HALF_DAY})?) ?- ?(?={TIME}|\d{{1,2}}:\d\d(?![:\d]))", r"\1 to "),
    rule(r"(?i)\b((?:from|open|work|works|worked|working|a|hours) )(\d{1,2})-(\d{1,2})\b(?![-/:.]\d)", _office_hours),
    # 18:00
    rule(r"(?<![\w:.,])(1[3-9]|2[0-3]):00(?![:\d])", lambda match: f"{small_number(int(match[1]))} hundred"),
)
