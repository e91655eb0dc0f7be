"""Numbers as text: one function for each quantity."""

import math

import pytest

from rpg.report import format as written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (written.accuracy(0.98349), "0.983"),
        (written.accuracy(1.0), "1.000"),
        (written.accuracy(math.nan), ""),
        (written.accuracy(None), ""),
        (written.points(0.0214), "+2.1"),
        (written.points(-0.3), "−30.0"),
        (written.points(math.nan), ""),
        (written.size_in_points(-0.05), "5.0"),
        (written.measured(0.00012345), "0.0001234"),
        (written.measured(55_560.4), "55,560"),
        (written.measured(math.inf), "inf"),
        (written.change(-0.4), "−0.4"),
        (written.change(12_345.2), "+12,345"),
        (written.reward(-0.5), "−0.500"),
        (written.reward(None), ""),
        (written.amount(0), "0"),
        (written.amount(2.5), "2.5"),
        (written.amount(1234.5), "1,234"),
        (written.amount(math.nan), ""),
        (written.times(5.02), "5"),
        (written.times(5.47), "5.5"),
        (written.times(123.4), "123"),
        (written.times(0.04), "0.04"),
        (written.percent(0.125), "12.5 %"),
        (written.percent(1.0), "100 %"),
        (written.percent(0.0), "0 %"),
        (written.percent(0.00029), "< 0.1 %"),
        (written.p_value(0.0123), "0.012"),
        (written.p_value(0.00012), "< 0.001"),
        (written.p_sentence(0.0123), "p = 0.012"),
        (written.p_sentence(0.00012), "p < 0.001"),
    ],
)
def test_a_number_has_one_spelling(text, expected):
    assert text == expected


def test_an_interval_names_both_bounds_in_the_unit_of_its_value():
    assert written.with_interval(0.5, 0.4, 0.6) == "0.500 [0.400, 0.600]"
    points = written.with_interval(0.021, -0.004, 0.046, written.points)
    assert points == "+2.1 [−0.4, +4.6]"
    assert written.with_interval(0.5, math.nan, math.nan) == "0.500"
    assert written.interval(None, 0.6) == ""
