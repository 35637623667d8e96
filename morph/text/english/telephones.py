"""Numbers read digit by digit: telephones, extensions and secret codes."""

import re

from .rules import Rule, rule
from .words import in_pairs, spell_digits

# Seven digits alone are a number of a telephone only with a hyphen, and if their exchange is one: 200 or above.
PHONE = re.compile(
    r"(?<![\w.,$\u00a3\u20ac-])(?:(?:\d{1,3}[ -])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-.]|[2-9]\d{2}-)"
    r"\d{4}(?!\.?[\w-])"
)
TOLL_FREE = re.compile(
    r"(?<![\w.,$\u00a3\u20ac-])(?:1[ -])?8(?:00|88|77|66|55|44|33) \d{3} \d{4}(?!\.?[\w-])"
)
# Three digits that are dialed one by one: call 112 or 999
OR = r"(?:(?:, (?:or |and )?| or | and |/){}(?![\w%]))*"
CALLED = re.compile(
    r"\b(?i:call|calls|called|calling|dial|dials|dialed|dialled|dialing|text|phone|ring|rang) "
    rf"\d{{3}}{OR.format('[0-9]{3}')}\b(?![-.]?\w| [a-z]+s\b)|\b(?:112|911|999)(?= or | and |/)"
    rf"{OR.replace('*', '+').format('(?:112|911|999)')}"
)
THREE = re.compile(r"\b\d{3}\b")
EMERGENCY = re.compile(
    r"(?<![\w.,/$\u00a3\u20ac-])(?<!Porsche )911\b(?![-.:/]\w| (?:people|[a-z]+s\b(?<!calls)(?<!operators)))"
)
# Four digits and more after these: the code for the gate is 4471.
SECRET = re.compile(
    r"\b((?i:code|pin|passcode|password|combination)\b(?:[^.,;!?\d\n]{0,30}\b(?:is|was|number|to))?:? ?(?:no\. |#)?)"
    r"(\d{4,8})\b(?![.,/-]\d)"
)
# 020 7946 0018
LOCAL_PHONE = re.compile(r"(?<![\w.,+/-])(?<!\d )\(?0\d{2,4}\)? \d{3,7}(?: \d{3,4})?\b(?![-.,]?\d)")
RULES: tuple[Rule, ...] = (
    # +1 800 555 0123, +44 7700 900123
    rule(r"(?<![\w+])\+(?:[ .()-]{0,2}\d){8,15}(?!\.?\w|-)", lambda match: "plus " + spell_digits(match[0])),
    (PHONE, lambda match: spell_digits(match[0])),
    (LOCAL_PHONE, lambda match: spell_digits(match[0])),
    rule(r"\b1-(8\d\d)-(?=[A-Z]{4})", lambda match: f"one {in_pairs(match[1])} "),  # 1-800-FLOWERS
    (TOLL_FREE, lambda match: spell_digits(match[0])),
    rule(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])", lambda match: spell_digits(match[0])),
    (CALLED, lambda match: THREE.sub(lambda one: spell_digits(one[0]), match[0])),
    (EMERGENCY, "nine one one"),
    (SECRET, lambda match: match[1] + spell_digits(match[2])),
    rule(r"\b((?i:extension)) (\d{2,5})\b", lambda match: f"{match[1]} {spell_digits(match[2])}"),
)
