"""The vocabulary of answers: functions, Greek letters, units of measurement, English words around a value, number words."""

from __future__ import annotations

from collections.abc import Sequence

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
).split()
FUNCTIONS = {
    name: name
    for name in (
        "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp sqrt max min gcd lcm det "
        "floor ceil abs arg deg dim ker hom inf sup Re Im"
    ).split()
} | {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "sgn": "sgn", "cbrt": "cbrt"}  # fmt: skip

ENGLISH_PAIRS = set("or is of in to we as at be by if it no so an am on up do he my us me go".split())
WORDS_IN_FORMULAS = set("or and not if for where when with the else otherwise is are ways way".split())

COPULAS = set(
    """
    is are equals equal be was were becomes become gives give get gets obtain obtains have has yields yield find finds
    obtained conclude being comes makes make means reads exists exist implies shows deduce compute calculate
    """.split()
)
"""What stands before one of these says what the answer is about."""

LEADING = set(
    """
    the a an answer final result solution solutions answers value values number numbers total so thus hence therefore
    then we get it is are that this there exactly precisely just simply only indeed given by to be equal equals our my
    required desired requested correct overall conclusion in i have found obtain obtained find finally as and ordered
    pair pairs set interval function functions equation equations triple triples point points following namely real
    integer integers positive complete expression maximum minimum smallest largest possible coordinates polynomial
    which such unique form both two three four five six seven eight nine ten option choice probability area length
    ratio consequently accordingly clearly must always hold holds these those ans thereby it's that's all every yes
    okay ok either done follows
    """.split()
)
"""Words that may stand directly before the value."""
APPROXIMATE = set("about approximately approx roughly around circa nearly approximated approximating".split())
CONCLUDING = set("so thus hence therefore consequently".split())
RESTATING = CONCLUDING | set("that is which equals equivalently namely giving meaning".split())
JOINING = set("and or as well both either".split())

NUMBERED = set(
    "step theorem lemma equation eq part section figure claim case problem question exercise page line".split()
)
"""A number behind one of these is a name."""
REFERRING = NUMBERED | set("by see from using via as with".split())
"""Where a remark in parentheses begins with one of these, its formulas only say why."""
SUCH_THAT = set("with such that satisfying for which real".split())
SUBORDINATE = set("for where attained achieved reached because since whenever occurring".split())

_DOUBT = set(
    """
    maybe perhaps possibly might could may probably guess guessing unsure uncertain whether doubt doubtful potentially
    presumably unless if ?
    """.split()
)
_DENIAL = set(
    """
    not no never neither nor cannot unlikely isn't aren't doesn't don't can't won't wasn't weren't wrong incorrect
    false mistake mistaken error erroneous invalid rejected impossible incorrectly wrongly but however although though
    actually wait hmm oops sorry correction corrected alternatively otherwise instead rather previous earlier
    initially initial expected guessed thought
    """.split()
)
_CHANGE = set(
    """
    most more less than greater fewer below above under over exceeds exceed exceeding bound bounds bounded beyond
    between within up twice double doubled tripled thrice half halves halved quarter quarters thirds squared cubed
    minus negative negated plus multiplied divided reciprocal inverse opposite dozen dozens hundred hundreds thousand
    thousands million millions billion billions trillion percent factorial base binary octal hexadecimal hex ternary
    root logarithm log raised modulus multiple multiples divisor divisors
    """.split()
)
SPOILING_IN_SUBJECT = _DOUBT | _DENIAL | {"or", "either"}
SPOILING = (
    _DOUBT
    | _DENIAL
    | _CHANGE
    | set(
        """
        none without except excluding exclude excluded nothing conjecture reject contradiction else another scratch
        reconsider recheck depending depends while provided assuming case cases any anything everything other
        undefined infinite dne among
        """.split()
    )
)
"""Words that make it unclear, deny, bound or change what is stated, before the value or behind it."""
LOCATING = set("above below before earlier previous expected".split())
POINTING = set(
    "as shown see derived computed found proved proven explained described stated calculated from the discussed".split()
)
"""`as shown above` points elsewhere in the response; `5 and above` does not."""
CHANGING = set("square cube sum difference product quotient times remainder twice root log triple of".split())
"""Words that change a value behind them; harmless after it (`5 square units`) and in the subject."""

_UP_TO_NINETEEN = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
    """.split()
_ONES = {word: value for value, word in enumerate(_UP_TO_NINETEEN)}
_TENS = {
    word: 10 * k for k, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_SCALES = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}


def number_in_words(words: Sequence[str]) -> tuple[int, int]:
    """(How many of the first words are one number, its value); (0, 0) where the first is none.

    `one` alone is more often a pronoun (`one of`, `the only one`), so it counts only where nothing follows.
    """
    parts = [(part, i) for i, word in enumerate(words[:20]) for part in word.split("-")]
    total = current = used = 0
    seen = False
    last = "start"
    for k, (part, i) in enumerate(parts):
        next_part = parts[k + 1][0] if k + 1 < len(parts) else ""
        begins = last in ("start", "scale", "hundred", "and")
        if part in _ONES and (begins or (last == "tens" and 0 < _ONES[part] < 10)):
            current += _ONES[part]
            last = "ones"
        elif part in _TENS and begins:
            current += _TENS[part]
            last = "tens"
        elif part == "hundred" and last == "ones":
            current *= 100
            last = "hundred"
        elif part in _SCALES and last in ("ones", "tens", "hundred"):
            total, current = total + current * _SCALES[part], 0
            last = "scale"
        elif part == "and" and last in ("hundred", "scale") and next_part in _ONES | _TENS:
            last = "and"
            continue
        else:
            break
        seen = True
        if k + 1 == len(parts) or parts[k + 1][1] != i:
            used = i + 1
    if not seen or not used:
        return 0, 0
    if list(words[:1]) == ["one"] and used == 1 and len(words) > 1:
        return 0, 0
    return used, total + current


# Units of measurement.

_PREFIXES = ("", *"k M G T m n p f c d h µ u a".split())
_SYMBOLS = (
    "m g s A K mol Hz N Pa J W C V F S Wb T H lm lx Bq Gy Sv L l eV bar cal B b bit rad sr pc yr erg".split()
)
_OTHER_SYMBOLS = """
    min hr hrs sec secs in ft mi yd lb lbs oz kt dB dBm AU ly Gyr Myr Torr torr atm mmHg psi rpm mph kph amu Da kDa
    ppm ppb dyn dyne Oe Ohm ohm ohms AA gal pt qt sq cu cd deg degs rads rev cc kWh MWh Wh Ah mAh Btu BTU hp USD EUR
    esu statC Mx cP St Ci mCi Msun Lsun Rsun arcsec arcmin mas Jy mJy nM wt vol sqcm sqm
    """.split()
_NOT_UNITS = {"as", "at", "am", "ab", "ac", "fb", "da", "ha", "pa", "nb", "mb", "ds", "ah", "ag", "hs"}
UNITS = ({p + s for p in _PREFIXES for s in _SYMBOLS if len(p + s) > 1} | set(_OTHER_SYMBOLS)) - _NOT_UNITS
"""Symbols of two letters or more, which mean a unit behind a number."""
_UNIT_NAMES = """
    meter metre gram second minute hour day week month year kelvin joule watt newton pascal hertz volt ampere amp mole
    coulomb farad henry tesla weber ohm liter litre foot inch mile yard pound ounce ton tonne degree radian steradian
    electronvolt angstrom parsec light-year erg dyne gauss calorie bar torr atmosphere dollar cent euro rupee yen unit
    knot acre hectare bit byte celsius fahrenheit lumen photon mass luminosity arcsecond arcminute micron
    """.split()
_MULTIPLES = {
    prefix + word
    for prefix in "kilo mega giga milli micro nano pico centi deci".split()
    for word in "meter metre gram second hertz joule watt pascal volt ampere liter litre mole tesla farad".split()
}
UNIT_WORDS = {form for word in {*_UNIT_NAMES, *_MULTIPLES} for form in (word, word + "s", word + "es")} | set(
    "feet sq square cubic per light astronomical solar siemens".split()
)
SINGLE_UNITS = set("mgshKJWNVLAT")
"""Letters that are a unit behind a number, where a number is expected; elsewhere they are variables."""
