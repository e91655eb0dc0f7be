"""The calendar of nights, and a number over them."""

from rpg.report.night_charts import LEAST, SHOWN, Change, calendar, chart, row
from rpg.report.nightly_bands import Number

DAY = 86400
SUNDAY = 1764460800  # 30 November 2025, midnight in UTC


def a_night(day):
    started = SUNDAY + DAY * day
    return {"night": f"2025-12-{day:02d}-0123abcd", "started": started, "values": {"a / b / kl": 1}}


def test_few_nights_are_a_calendar_of_twelve_weeks_too():
    cells, marks = calendar([a_night(1), a_night(3)]).layer
    days = cells.data["date"]
    assert LEAST <= len(days) < LEAST + 7 and days.is_unique
    assert days.iloc[0].day_name() == "Sunday" and days.iloc[-1] == marks.data["date"].iloc[-1]
    assert len(marks.data) == 2


def test_a_calendar_ends_after_half_a_year():
    cells, marks = calendar([a_night(day) for day in range(300)]).layer
    assert len(marks.data) == SHOWN and len(cells.data) < SHOWN + 7


def test_nights_are_labelled_with_their_days():
    drawn = chart("a / b / kl", [a_night(1), a_night(2)], []).to_dict()
    axis = drawn["layer"][0]["encoding"]["x"]["axis"]
    assert axis["labelAngle"] == 0 and "slice(datum.label, 0, 10)" in axis["labelExpr"]


def test_a_number_has_its_band_as_one_text():
    above = Number("a / b / grad_norm", 1.7, -float("inf"), 1.5, 0.2)
    assert row(Change(above, 0.8))["band"] == "at most 1.5"
    assert row(Change(Number("a / b / kl", 1.0, None, None, None), None))["band"] == ""
