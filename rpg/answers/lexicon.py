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

END_TOKENS = (
    r"<[|｜][^|｜<>]{1,30}[|｜]>"  # <|im_end|> <|endoftext|> <|eot_id|> <｜end▁of▁sentence｜> <|return|> <|END_OF_TURN_TOKEN|>
    r"|</?s>|<eos>|<bos>|<pad>|<unk>|<end_of_turn>|<start_of_turn>|<eoa>|<eod>|<eop>|<eom>|<eot>|<end_of_text>"
    r"|<end_of_utterance>|\[(?:EOS|EOT|SEP|CLS|PAD|/?INST|/?SYS)\]|<\[?/?EOT\]?>|\[\|endofturn\|\]|\[e~\[|<SPECIAL_\d+>"
)
"""A pattern of the end-of-text and turn tokens in the published tokenizer configurations of Llama, Mistral, Qwen, Gemma, Phi,
DeepSeek, SmolLM, OLMo, Falcon, Yi, InternLM, GLM, Cohere, Granite, Kimi, MiniMax, EXAONE, Nemotron, gpt-oss and BERT."""

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
    presumably unless if ish ?
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
REASONS = set("since because as rejecting discarding".split())
RETRACTING = _DOUBT | set(
    "wait actually wrong incorrect mistake oops sorry correction or alternatively but".split()
)
"""Words that spoil a reason."""
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
UNIT_VALUES = {
    name: value
    for line in """
    pi=pi;m meter metre=m;g gram gramme=g;s sec second=s;A amp ampere=A;K kelvin=K;mol mole=mol;cd candela=cd;rad radian=1
    degree deg=1/180 pi;rev revolution=2 pi;gradian gon=1/200 pi;arcmin arcminute=1/60 degree;arcsec arcsecond=1/3600 degree
    min minute=60 s;h hr hour=3600 s;day=86400 s;week=7 day;yr year=31557600 s;month=1/12 year
    in inch inche=0.0254 m;ft foot feet=12 in;yd yard=3 ft;mi mile=1760 yd;acre=4840 yd^2;ha hectare=10000 m^2
    lb pound=0.45359237 kg;oz ounce=1/16 lb;tonne=1000 kg;ton=ton;angstrom AA=1/10000000000 m;micron=1/1000000 m
    L l liter litre=1/1000 m^3;cc=cm^3;gal gallon=231 in^3;qt quart=1/4 gal;pt pint=1/8 gal;cup=1/16 gal
    Hz hertz=1/s;N newton=kg m/s^2;J joule=N m;W watt=J/s;Pa pascal=N/m^2;C coulomb=A s;V volt=J/C;F farad=C/V
    T tesla=V s/m^2;Wb weber=V s;H henry=V s/A;ohm Ohm Omega=V/A;S siemens=A/V;bar=100000 Pa;atm atmosphere=101325 Pa
    cal calorie=4.184 J;erg=1/10000000 J;eV electronvolt=eV;mph=mi/h;kph=km/h;rpm=rev/min;knot=knot
    bit=bit;B byte=8 bit;usd USD dollar=usd;cent=1/100 usd;eur EUR euro=eur;gbp GBP=gbp;rupee=inr;yen=jpy
    ante=am;pnte=pm;kWh=3600000 J;celsius=celsius;fahrenheit=fahrenheit;pc parsec=pc;AU=AU;ly=ly
    """.replace("\n", ";").split(";")
    for names, _, value in [line.strip().partition("=")]
    for name in names.split()
}
"""What units are worth in others; one that is not there, or worth itself, is a base unit."""
PREFIXES = {
    "k": 3, "M": 6, "G": 9, "T": 12, "m": -3, "c": -2, "d": -1, "u": -6, "µ": -6, "mu": -6, "n": -9, "p": -12, "f": -15,
    "kilo": 3, "mega": 6, "giga": 9, "milli": -3, "centi": -2, "deci": -1, "micro": -6, "nano": -9, "pico": -12,
}  # fmt: skip
"""Powers of ten."""
_UNIT_NAMES = (
    [name for name in UNIT_VALUES if len(name) > 2 and name.islower()]
    + """
    steradian light-year dyne gauss torr unit mass luminosity lumen photon
    """.split()
)
_MULTIPLES = {p + name for p in PREFIXES if len(p) > 3 for name in _UNIT_NAMES}
UNIT_WORDS = {form for word in {*_UNIT_NAMES, *_MULTIPLES} for form in (word, word + "s", word + "es")} | set(
    "feet sq square cubic per light astronomical solar siemens".split()
)
SINGLE_UNITS = set("mgshKJWNVLAT")
"""Letters that are a unit behind a number, where a number is expected; elsewhere they are variables."""
