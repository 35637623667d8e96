"""Lines with figures, letters and capitals, which a voice must read, and how they are read aloud.

The pack's own normalizer writes them out, so a voice that was trained on these lines and one that gets its text
normalized say the same. A voice hears half of them as they are written and half as they are read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
UNITS = ("km", "kg", "cm", "mm", "m", "mph", "minutes", "degrees", "pages", "miles", "pounds", "%")
THINGS = ("chairs", "books", "tickets", "people", "boxes", "eggs", "letters", "houses", "horses", "windows")
PLACES = ("in the garden", "on the list", "in the hall", "by the door", "near the station", "on the shelf")
NAMES = ("Anna", "Ben", "Clara", "David", "my sister", "our neighbour", "the teacher", "the doctor")
LETTERS = (
    *("BBC", "FBI", "CIA", "USA", "UK", "EU", "UN", "TV", "DVD", "CD", "PDF", "GPS", "ATM", "VIP", "CEO"),
    *("PhD", "ID", "IT", "PC", "USB", "DNA", "MRI", "FAQ", "DIY", "HR", "NBA", "NFL", "WHO", "IBM", "MP"),
)
# Templates of lines; a held-out template is in no training line.
TEMPLATES = {
    "count": ("There are {count} {things} {place}.", "{name} has {count} {things}.", "I counted {count}."),
    "ordinal": ("It is the {ordinal} door.", "{name} came {ordinal}.", "This was my {ordinal} attempt."),
    "decimal": ("It rose by {decimal}.", "The answer is {decimal}.", "It weighs {decimal} kg."),
    "year": ("It was built in {year}.", "{name} was born in {year}.", "In {year} everything changed."),
    "time": ("The train leaves at {time}.", "Come back at {time}, please.", "It is {time}."),
    "date": ("The party is on {date}.", "On {date} {name} left.", "We met on {date}."),
    "money": ("It costs {money}.", "{name} paid {money} for it.", "That makes {money}, please."),
    "share": ("About {share} of them agreed.", "It is {share} full.", "Only {share} were left."),
    "phone": ("Call me at {phone}.", "The number is {phone}."),
    "unit": ("It is {unit} from here.", "We need {unit} of it.", "They measured {unit}."),
    "fraction": ("Take {fraction} of a cup.", "{fraction} of the money is gone."),
    "letters": (
        "{name} works for the {letters}.",
        "I saw it on the {letters}.",
        "The {letters} called again.",
    ),
}
HELD_OUT = {
    "count": ("They sold {count} {things} last week.",),
    "ordinal": ("She lives on the {ordinal} floor.",),
    "decimal": ("The distance is {decimal} km.",),
    "year": ("The war ended in {year}.",),
    "time": ("We close at {time} today.",),
    "date": ("The letter is dated {date}.",),
    "money": ("The old clock was sold for {money}.",),
    "share": ("Prices fell by {share}.",),
    "phone": ("You can reach us at {phone}.",),
    "unit": ("The box is {unit} long.",),
    "fraction": ("He ate {fraction} of the cake.",),
    "letters": ("The {letters} did not answer.",),
}
MOST_TRIES = 10_000  # to fill the held-out templates


@dataclass(frozen=True)
class Reading:
    """A line as it is written, and as it is read aloud."""

    written: str
    read: str


def _count(rng: random.Random) -> str:
    size = rng.choice((10, 100, 1000, 10_000, 1_000_000))
    number = rng.randrange(2, max(size, 3))
    return f"{number:,}" if rng.random() < 0.7 else str(number)


def _ordinal(rng: random.Random) -> str:
    number = rng.choice((rng.randrange(1, 32), rng.randrange(1, 130)))
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def _decimal(rng: random.Random) -> str:
    places = rng.choice((1, 1, 2))
    return f"{rng.uniform(0, rng.choice((1, 10, 100))):.{places}f}"


def _year(rng: random.Random) -> str:
    return str(rng.choice((rng.randrange(1100, 1900), rng.randrange(1900, 2000), rng.randrange(2000, 2100))))


def _time(rng: random.Random) -> str:
    minute = rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, rng.randrange(60)))
    if rng.random() < 0.6:
        half = rng.choice(("am", "pm", "a.m.", "p.m."))
        hour = rng.randrange(1, 13)
        return f"{hour} {half}" if minute == 0 and rng.random() < 0.5 else f"{hour}:{minute:02} {half}"
    return f"{rng.randrange(24)}:{minute:02}"


def _date(rng: random.Random) -> str:
    month, day, year = rng.choice(MONTHS), rng.randrange(1, 29), _year(rng)
    return rng.choice((f"{month} {day}", f"{month} {day}, {year}", f"{day} {month} {year}"))


def _money(rng: random.Random) -> str:
    sign = rng.choice(("$", "$", "\u00a3", "\u20ac"))
    whole = rng.randrange(1, rng.choice((20, 200, 5000, 100_000)))
    return f"{sign}{whole:,}" if rng.random() < 0.5 else f"{sign}{whole:,}.{rng.randrange(1, 100):02}"


def _share(rng: random.Random) -> str:
    return f"{rng.choice((rng.randrange(1, 101), round(rng.uniform(0, 20), 1)))}%"


def _phone(rng: random.Random) -> str:
    near = f"{rng.randrange(200, 1000)}-{rng.randrange(10_000):04}"
    return near if rng.random() < 0.5 else f"{rng.randrange(200, 1000)}-{near}"


def _unit(rng: random.Random) -> str:
    unit, number = rng.choice(UNITS), rng.randrange(2, rng.choice((10, 100, 1000)))
    return f"{number}{unit}" if unit == "%" else f"{number} {unit}"


def _fraction(rng: random.Random) -> str:
    return rng.choice(("1/2", "1/3", "2/3", "1/4", "3/4", "1/5", "3/5", "1/8", "5/8", "7/10"))


VALUES: dict[str, Callable[[random.Random], str]] = {
    "count": _count,
    "ordinal": _ordinal,
    "decimal": _decimal,
    "year": _year,
    "time": _time,
    "date": _date,
    "money": _money,
    "share": _share,
    "phone": _phone,
    "unit": _unit,
    "fraction": _fraction,
    "letters": lambda rng: rng.choice(LETTERS),
}


def _fill(kind: str, template: str, rng: random.Random) -> str:
    chosen = {"things": rng.choice(THINGS), "place": rng.choice(PLACES), "name": rng.choice(NAMES)}
    line = template.format(**chosen, **{kind: VALUES[kind](rng)}).replace("..", ".")
    return line[0].upper() + line[1:]


def figure_lines(count: int, seed: int) -> list[str]:
    """Return ``count`` different training lines as they are written, all kinds alike often where there are enough."""
    rng, found = random.Random(f"{seed} figures"), dict[str, None]()
    for turn in range(20 * count):
        kind = list(TEMPLATES)[turn % len(TEMPLATES)]
        found[_fill(kind, rng.choice(TEMPLATES[kind]), rng)] = None
        if len(found) == count:
            break
    return list(found)


def held_out_figure_lines(count: int, seed: int) -> list[str]:
    """Return ``count`` lines of templates that no training line has, all kinds in rotation."""
    rng, found = random.Random(f"{seed} held-out figures"), dict[str, None]()
    for turn in range(MOST_TRIES):
        kind = list(HELD_OUT)[turn % len(HELD_OUT)]
        found[_fill(kind, rng.choice(HELD_OUT[kind]), rng)] = None
        if len(found) == count:
            return list(found)
    raise ValueError(f"{count} held-out lines with figures: the templates have only {len(found)}")


def read_aloud(lines: Sequence[str], write_out: Callable[[str], str]) -> list[Reading]:
    """Return the lines with their readings, without those whose reading still has a figure or a sign."""
    readings = [Reading(line, write_out(line)) for line in lines]
    return [one for one in readings if not any(sign in one.read for sign in "0123456789$%/@\u00a3\u20ac")]
