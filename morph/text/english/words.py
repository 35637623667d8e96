"""Write numbers as words where the library would group them differently: years, decades, codes."""

from ..lists import table

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = tuple("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split())  # noqa: SIM905
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ORDINALS = table("words.ordinals")
LARGE = {10**9: "billion", 10**6: "million"}
POWERS = {"2": " squared", "3": " cubed"}


def small_number(number: int) -> str:
    """Return a number below 100 in words: 42 "forty two"."""
    if number < 20:
        return (DIGITS + TEENS)[number]
    tens = TENS[number // 10 - 2]
    return f"{tens} {DIGITS[number % 10]}" if number % 10 else tens


def in_words(number: int) -> str:
    """Return a number below a trillion in words: 1,204 "one thousand two hundred and four"."""
    for size, name in LARGE.items():
        if number >= size:
            high, rest = divmod(number, size)
            said = f"{in_words(high).replace(' and ', ' ')} {name}"
            return f"{said} {in_words(rest)}" if rest else said
    thousands, rest = divmod(number, 1000)
    hundreds, last = divmod(rest, 100)
    words = [f"{in_words(thousands).replace(' and ', ' ')} thousand"] if thousands else []
    words += [f"{small_number(hundreds)} hundred"] if hundreds else []
    if words and last:
        words.append("and")
    return " ".join([*words, small_number(last)] if last or not words else words)


def in_pairs(digits: str) -> str:
    """Return up to four digits as years and codes are read: 747 "seven forty seven", 1905 "nineteen oh five"."""
    if len(digits) < 3:
        return small_number(int(digits))
    high, low = int(digits[:-2]), int(digits[-2:])
    if high == 20 and low < 10:
        return "two thousand" + (f" {DIGITS[low]}" if low else "")
    if low == 0 and high % 10 == 0:
        return f"{small_number(high // 10)} thousand"
    if low == 0:
        return f"{small_number(high)} hundred"
    return f"{small_number(high)} {'oh ' if low < 10 else ''}{small_number(low)}"


def spell_digits(number: str) -> str:
    """Return digits with pauses between groups: 555-1234 "five five five, one two three four"."""
    groups: list[list[str]] = [[]]
    for char in number:
        if char.isdecimal():
            groups[-1].append(DIGITS[int(char)])
        elif groups[-1]:
            groups.append([])
    return ", ".join(" ".join(group) for group in groups if group)


def ordinal(number: int) -> str:
    """Return a number below 100 as an ordinal: 8 "eighth", 21 "twenty first"."""
    *tens, last = small_number(number).split()
    said = ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return " ".join([*tens, said])


def plural(word: str) -> str:
    """Return the plural of a number, a letter's name or a unit: sixties, esses, inches, ohs."""
    if word.endswith("ty"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch")) else "s")


def power(exponent: str) -> str:
    return POWERS.get(exponent, f" to the power of {exponent}")
