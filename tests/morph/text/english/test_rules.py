"""The rules before and after the library, with examples. The library takes long, and is not asked here."""

from __future__ import annotations

import pytest
from qwen3_tts_morph.morph.text import english
from qwen3_tts_morph.morph.text.english.rules import pairs, table
from qwen3_tts_morph.morph.text.english.words import in_pairs, ordinal, plural, small_number


def written(rows: str) -> list[tuple[str, str]]:
    """Return the rows "text -> what the library gets"."""
    return [(text, said) for text, said in (row.strip().split(" -> ") for row in rows.strip().splitlines())]


SHORT_FORMS = """
    Prof. Lee met Sen. Warren and Rep. Ann Fox. -> Professor Lee met Senator Warren and Representative Ann Fox.
    Mrs. and Ms. Lee -> Mrs. and Miz Lee
    St. Paul and Mt. Hood, near Ft. Worth -> Saint Paul and Mount Hood, near Fort Worth
    He lives on Elm Dr. with Dr. Lee. -> He lives on Elm Drive with Doctor Lee.
    at 12 Main St., on 5th Ave. near us -> at 12 Main Street, on 5th Avenue near us
    It is on Main St. -> It is on Main Street.
    See Eq. 5, Figs. 2 and 3, Nos. 3 and 4, pp. 7. -> See Equation 5, Figures 2 and 3, Numbers 3 and 4, pages 7.
    apt. 3B, ext. 20, Lat. 52.5, Ca. 1850 -> apartment 3B, extension two zero, Latitude 52.5, Circa 1850
    E.g. this, i.e. that, approx. 5, etc. -> For example this, that is that, approximately 5, et cetera.
    Acme Inc. and the Univ. of Ohio -> Acme Incorporated and the University of Ohio
    w/ milk, w/o sugar, w/cream -> with milk, without sugar, with cream
    Mon.-Fri., Jan-Mar, May-June -> Monday to Friday, January to March, May to June
    Mr Lee, Rome vs. Gaul, Vol. II, in Feb. -> Mister Lee, Rome versus Gaul, Volume two, in February.
    5 min. 30 sec. -> 5 minutes 30 seconds.
    b. 1950, d. 2010 -> born 1950, died 2010
    Turn left on Rt. 66. -> Turn left on Route 66.
    Sat. and Sun., Asst. Manager -> Saturday and Sunday, Assistant Manager
    350 W 42nd St., 12 Oak St -> 350 West 42nd Street, 12 Oak Street
    See para. 2, paras. 3-5, in 3 vols. -> See paragraph 2, paragraphs 3 to 5, in 3 volumes.
    The max. load; a mtg. about the gov't -> The maximum load; a meeting about the government
"""
DATES = """
    the 2010s, 1860s, 1900s -> the twenty tens, eighteen sixties, nineteen hundreds
    the 80s and '60s -> the eighties and sixties
    the 2019/20 season of 1914-18 -> the twenty nineteen twenty season of nineteen fourteen to eighteen
    in 476 AD, AD 79 and 44 BC -> in 476 ay dee, ay dee 79 and 44 bee see
    on 2024-03-04 or on 5/12 -> on March fourth, twenty twenty four or on May twelfth
    June 5-7, 5-7 June, at 18:00 -> June fifth to seventh, the fifth to the seventh of June, at eighteen hundred
    7-9 pm, a 9-5 job, 9am-5pm -> 7 to 9 pm, a 9 to 5 job, 9am to 5pm
    2:03:59 hours, at 7h30, at 10.30. -> 2 hours 3 minutes 59 seconds, at 7 thirty, at 10:30.
    3:43.13, 1h 20m, 2h 5min -> three forty three point one three, 1 hour 20 minutes, 2 hours 5 minutes
    for 5h, 20m ago -> for 5 hours, 20 minutes ago
    at 0600, 0730 hours, at 06 -> at oh six hundred, oh seven thirty hours, at 06
    14/15 April, the '00s, the 19th c. -> the fourteenth to the fifteenth of April, the two thousands, the 19th century.
    under-18s, 80s-style, 24x7 -> under eighteens, eighties-style, twenty four seven
    the 9-11 attacks, his birthday is 3/14 -> the nine eleven attacks, his birthday is March fourteenth
    9/11/01, 2/29, 3/16, at 24:00 -> September eleventh, two thousand one, February twenty ninth, 3/16, at midnight
    Mon-Fri. -> Monday to Friday.
    on the 2nd fl., Mon 3/4, 20:00 hrs -> on the 2nd floor, Monday March fourth, twenty hundred hours
    at 1800 hrs, 1800 hours of work -> at eighteen hundred hours, 1800 hours of work
"""
RELATIONS = """
    20th-century, 18th- and 19th-century -> 20th century, 18th and 19th century
    mid-20th, a 3rd-party app -> mid 20th, a 3rd party app
    2-3 days, pages 12-15, 100-2000 people -> 2 to 3 days, pages 12 to 15, 100 to 2000 people
    She won 6-4, they lost 0-1, a 3-0 win -> She won 6 to 4, they lost 0 to 1, a 3 0 win
    10%-15%, 5kg-10kg, the 18th-19th -> 10% to 15%, 5 kilograms to 10 kilograms, the 18th to 19th
    between 5-10, 3 : 2 -> between 5 and 10, 3 to 2
    a 4-4-2, the 1-2 punch -> a 4 4 2, the 1 2 punch
    16:9, 3:1, a ratio of 1:10, at 10:30 -> 16 by 9, 3 to 1, a ratio of 1 to 10, at 10:30
    Psalm 23:4, 1 John 4:7-8 -> Psalm 23 verse 4, First John 4 verses 7 to 8
    20/20 vision, 7/10 in a test, 1/10 of it -> 20 20 vision, 7 out of 10 in a test, 1/10 of it
    120/80 -> one twenty over eighty
    It is COVID-19, not 555-0123-4. -> It is COVID-19, not 555-0123-4.
    It passed as they voted 51-49, odds are 10-1 -> It passed as they voted 51 to 49, odds are 10 to 1
    20-1 odds, a 2-3 loss, a 10/10 -> 20 to 1 odds, a 2 3 loss, a 10 out of 10
    1-1/2 cups, 2/3rds, 20/200 vision -> 1 1/2 cups, 2/3, 20 200 vision
    won 6-4, 3-6, 7-5, pages 1-3, 5-7 -> won 6 4, 3 6, 7 5, pages 1 to 3, 5 to 7
    Gen. 1:1 and Matt 5:3-12 -> Genesis 1 verse 1 and Matthew 5 verses 3 to 12
    1:50,000, odds of 5/1, the 10/1 favourite -> 1 to 50,000, odds of 5 to 1, the 10 to 1 favourite
    245/6 -> 245 for 6
"""
MONEY = """
    US$100, A$5 and HK$1 -> 100 US dollars, 5 Australian dollars and 1 Hong Kong dollar
    \u20b9500, 5 CHF, EUR 5, 50\u00a2 -> 500 rupees, 5 Swiss francs, 5 euros, 50 cents
    $5m-10m and $5k-$10k -> 5 to $10 million and 5 to $10,000
    a $20 bill, the \u00a310 note -> a 20 dollar bill, the 10 pound note
    a $20 each, the $20 he owes -> a $20 each, the $20 he owes
    a sub-$100 phone, $15/hour -> a sub 100 dollar phone, $15 per hour
    50k people, a 5k run, 2M views -> 50 thousand people, a 5k run, 2 million views
    a hard $3-a-day job, two $5-million houses -> a hard 3 dollar a-day job, two 5 million dollar houses
    a $2-billion-dollar firm, $80/barrel -> a 2 billion dollar firm, $80 per barrel
    He paid $5 - a lot. The $5 million goes on. -> He paid $5 - a lot. The $5 million goes on.
    7.8bn people, 1.2m barrels, 2m people -> 7.8 billion people, 1.2 million barrels, 2 million people
    between $5 and $10 million, $1.5-2 million, $500+ -> between 5 and $10 million, 1.5 to $2 million, 500 plus dollars
    14k gold, 75p -> 14 karat gold, 75 pence
    a $40M Series B, US$3bn, 1,000\u20ac -> a 40 million dollar Series B, 3 billion US dollars, \u20ac1,000
"""
UNITS = """
    5 ft. tall, a 5 lb. bag, 8 oz. of it, 1 tsp. -> 5 feet tall, a 5 pound bag, 8 ounces of it, 1 teaspoon.
    5 ft 4 in, 5 in. long -> 5 feet 4 inches, 5 inches long
    9.58s, 20 L, 1 MB/s, 2 atm -> 9.58 seconds, 20 liters, 1 megabyte per second, 2 atmospheres
    the 10 km race, 10 km away, 1/2 oz -> the 10 kilometer race, 10 kilometers away, 1/2 ounce
    the 4x100 m relay, the 100-m dash -> the 4 by 100 meter relay, the 100 meter dash
    3,5 kg, 850,00 \u20ac, 1.000.000 euros -> 3.5 kilograms, \u20ac850, 1,000,000 euros
    25.000 inhabitants, 1.000 inches, 1.500 euros -> 25,000 inhabitants, 1.000 inches, 1,500 euros
    left her 1999 books, her 1999 books -> left her 1,999 books, her 1999 books
    They sold 1745 cars. In 1999 cars, the 1999 cars -> They sold 1,745 cars. In 1999 cars, the 1999 cars
    it is 1250 feet, 1 000 000 people, 35 000 feet -> it is 1,250 feet, 1,000,000 people, 35,000 feet
    a 27" screen, a 3/4" pipe, 9mm pistols, 55". -> a 27 inch screen, a 3/4 inch pipe, 9 millimeter pistols, 55 inches.
    "It is 55". -> "It is 55”.
    a 1,500-meter race, 30 psi, 25bp -> a 1,500 meter race, 30 pee ess eye, 25 basis points
    100s of them, two 5s -> hundreds of them, two fives
    350 degrees F, a 100-year-old tree -> 350 degrees Fahrenheit, a 100 year-old tree
    a 3 y/o, 3 pct, 60 m.p.h., $1.5 bln, 3 mln -> a 3 year old, 3 percent, 60 miles per hour, $1.5 billion, 3 million
    a 3-pt. lead -> a 3 point lead
    250 hp, 90 kN, 12 ha, 985 hPa -> 250 horsepower, 90 kilonewtons, 12 hectares, 985 hectopascals
    6 L/100 km, 9 g/cm3, a 10 A fuse -> 6 liters per hundred kilometers, 9 grams per cubic centimeter, a 10 amp fuse
"""
MATHS = """
    5 x 3 = 15, 6 \u00d7 7 = 42, 12 \u00f7 4 -> 5 times 3 equals 15, 6 times 7 equals 42, 12 divided by 4
    10 / 2, 5 * 5, 10^6, x^2 and 10^3 -> 10 divided by 2, 5 times 5, 10 to the power of 6, x squared and 10 cubed
    \u221a16, \u00b15, 5\u2030 -> the square root of 16, plus or minus 5, 5 per mille
    1.5e-3, 3 x 10^8 -> 1.5 times 10 to the power of minus 3, 3 times 10 to the power of 8
    x > 5, < 5 minutes, be \u2265 10 -> x is greater than 5, less than 5 minutes, be at least 10
    10 \u00d7 15 cm, 2 m \u00d7 3 m, a 6x4 photo -> 10 by 15 centimeters, 2 meters by 3 meters, a 6 by 4 photo
    C++, C#, an A+, 0x80, <b> -> C plus plus, see sharp, an A plus, 0x80, <b>
    10' x 12', 2x/day -> 10 feet by 12 feet, 2 times a day
    5! = 120, Yes, 5! Good. -> 5 factorial equals 120, Yes, 5! Good.
"""
NAMES = """
    I, II and III; Part I again; GTA V -> one, two and three; Part I again; GTA five
    When I read Part I again, scene ii. -> When I read Part one again, scene two.
    MCMXCIV, the XIX century, Rocky IV is -> nineteen ninety four, the nineteenth century, Rocky four is
    H2SO4, CO2 -> aitch two ess oh four, see oh two
    #1, 007, 1080p, A380, Flight 370 -> number 1, double oh seven, ten eighty pee, A three eighty, Flight three seventy
    401(k), v2.1 -> four oh one kay, v 2 point 1
    example.org/about, /usr/bin -> example dot org slash about, slash user slash bin
    C:\\Users, foo_bar, a.txt -> C colon backslash Users, foo underscore bar, a dot tee ex tee
    and/or, he/she, 5 km/h -> and/or, he/she, 5 kilometers per hour
    CEOs, TVs, TCP/IP, a PhD, the pH -> see ee ohs, tee vees, TCP IP, a PHD, the PH
    BA117, MH370; ISO9001, USD500 -> bee ay one seventeen, em aitch three seventy; ISO9001, 500 US dollars
    Flight U2345, RTX 4090, Room 3000 -> Flight U twenty three forty five, RTX forty ninety, Room three thousand
    a 737-800, A350-1000 -> a seven thirty seven eight hundred, A three fifty one thousand
    two 747s, 747 people -> two seven forty sevens, 747 people
    B-52s, error 404, 404 books -> bee fifty twos, error four oh four, 404 books
    NaCl, HCl, NaOH and NaN, CoCo, PhD -> en ay see ell, aitch see ell, en ay oh aitch and NaN, CoCo, PHD
    Reno, NV; Portland, OR. Baltimore, MD; yes, OK -> Reno, Nevada; Portland, Oregon. Baltimore, Maryland; yes, OK
    example.co.uk, bbc.org; the end.then -> example dot co dot you kay, bee bee see dot org; the end.then
    Ctrl+Alt+Del, N. Korea, NE winds -> control alt delete, North Korea, northeast winds
    London SW1Y 4LB -> London ess double-you 1 why, 4 ell bee
    WW2, John D. Smith IV, Malcolm X -> World War two, John D. Smith the fourth, Malcolm X
    a .com site, Dial *69, bus 101 -> a dot com site, Dial star 69, bus one oh one
    Boston, Mass., the No. of towns in 3/4 time -> Boston, Massachusetts, the Number of towns in 3 4 time
    mp3s, A4s, the 49ers, localhost:8080 -> em pee threes, ay fours, the forty niners, localhost colon eighty eighty
"""
TELEPHONES = """
    +1 800 555 0123 -> plus one, eight zero zero, five five five, zero one two three
    Call 911, dial 999, a Porsche 911 -> Call nine one one, dial nine nine nine, a Porsche nine eleven
    The code for it is 4471, PIN: 0042 -> The code for it is four four seven one, PIN: zero zero four two
    1-800-FLOWERS -> one eight hundred FLOWERS
    +44 7700 900123 -> plus four four, seven seven zero zero, nine zero zero one two three
    call 112 or 999, 112 or 999 -> call one one two or nine nine nine, one one two or nine nine nine
"""
ALL = (SHORT_FORMS, DATES, RELATIONS, MONEY, UNITS, MATHS, NAMES, TELEPHONES)


@pytest.mark.parametrize(("text", "said"), [row for rows in ALL for row in written(rows)])
def test_what_the_library_reads_wrongly_is_written_out_before_it(text: str, said: str) -> None:
    assert " ".join(english.before(text).split()) == said


CAPITALS = """
    The US economy. -> The you ess economy.
    Tell US now! It is good for US. -> Tell us now! It is good for us.
    The US, UK and EU agreed. -> The you ess, you kay and ee you agreed.
    She works in IT. The IT is old. -> She works in eye tee. The eye tee is old.
    Do IT! That is IT, I said. -> Do it! That is it, I said.
    "LET US OUT!" the children said. -> "let us out!" the children said.
    US SENATE PASSES THE BILL -> You ess senate passes the bill
    The WHO and who? An AD, I AM, 5 AM. -> The double-you aitch oh and who? An ad, I am, five ay em.
    HDMI, ISBN, OLED, UCLA and NASA -> Aitch dee em eye, eye ess bee en, oh ell ee dee, you see ell ay and Nasa
    WWII, JPEG, the LED, a PIN -> World War two, jay peg, the ell ee dee, a pin
    NIGHT and NEXT are STRONG. -> Night and Next are Strong.
    They told US the truth, and left US alone. -> They told us the truth, and left us alone.
    They told US officials. -> They told you ess officials.
    WHY ARE YOU TELLING US THIS? -> Why are you telling us this?
    NOBODY TOLD US ANYTHING. -> Nobody told us anything.
    The UN's WHO met. -> The you en's double-you aitch oh met.
    The agency (WHO). -> The agency (double-you aitch oh).
    FBI RAIDS HOME IN NY -> Eff bee eye raids home in en why
    ASAP, ACT scores, LSAT -> Ay ess ay pee, ay see tee scores, ell sat
"""


@pytest.mark.parametrize(("text", "said"), written(CAPITALS))
def test_words_in_capitals_are_names_or_stressed_by_their_neighbours(text: str, said: str) -> None:
    assert english.after(text) == said


def test_numbers_in_words() -> None:
    assert [small_number(number) for number in (0, 7, 13, 20, 42, 99)] == [
        *("zero", "seven", "thirteen", "twenty", "forty two", "ninety nine")
    ]
    assert [in_pairs(year) for year in ("12", "105", "747", "1900", "1905", "2000", "2005", "2019")] == [
        *(
            "twelve",
            "one oh five",
            "seven forty seven",
            "nineteen hundred",
            "nineteen oh five",
            "two thousand",
        ),
        *("two thousand five", "twenty nineteen"),
    ]
    assert [ordinal(number) for number in (3, 8, 11, 12, 13, 20, 21, 44)] == [
        *("third", "eighth", "eleventh", "twelfth", "thirteenth", "twentieth", "twenty first", "forty fourth")
    ]
    assert [plural(word) for word in ("sixty", "oh", "ess", "why")] == ["sixties", "ohs", "esses", "whys"]


def test_tables_are_read_from_their_cells() -> None:
    assert table("a: b c, d: e\n f.: g") == {"a": "b c", "d": "e", "f.": "g"}
    assert pairs("a: b/c, d: e") == {"a": ("b", "c"), "d": ("e", "e")}
