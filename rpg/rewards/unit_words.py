"""Names of units of measurement."""

_PREFIXES = ("", *"k M G T m n p f c d h µ u a".split())
_SYMBOLS = (
    "m g s A K mol Hz N Pa J W C V F S Wb T H lm lx Bq Gy Sv L l eV bar cal B b bit rad sr pc yr erg".split()
)
_OTHERS = """
    min hr hrs sec secs in ft mi yd lb lbs oz kt dB dBm AU ly Gyr Myr Torr torr atm mmHg psi rpm mph kph amu Da kDa
    ppm ppb dyn dyne Oe Ohm ohm ohms AA gal pt qt sq cu cd deg degs rads rev cc kWh MWh Wh Ah mAh Btu BTU hp USD EUR
    esu statC Mx cP St Ci mCi Msun Lsun Rsun arcsec arcmin mas Jy mJy nM wt vol sqcm sqm
    """.split()
_ENGLISH = {"as", "at", "am", "ab", "ac", "fb", "da", "ha", "pa", "nb", "mb", "ds", "ah", "ag", "hs"}
UNITS = ({p + s for p in _PREFIXES for s in _SYMBOLS if len(p + s) > 1} | set(_OTHERS)) - _ENGLISH
"""Symbols of two letters or more, which mean a unit behind a number."""
_WORDS = """
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
UNIT_WORDS = {form for word in {*_WORDS, *_MULTIPLES} for form in (word, word + "s", word + "es")} | set(
    "feet sq square cubic per light astronomical solar siemens".split()
)
SINGLE_UNITS = set("mgshKJWNVLAT")
"""Letters that are a unit behind a number, where a number is expected; elsewhere they are variables."""
