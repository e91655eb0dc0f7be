"""How a test fills in a form of the Prefect UI."""

import re


def field(page, name):
    """The part of the form that belongs to one parameter."""
    label = page.locator(
        ".schema-form-property__label", has_text=re.compile(rf"^{name}( \(Optional\))?$")
    )
    return page.locator(".schema-form-property").filter(has=label).last


def choose(page, name, option):
    field(page, name).locator("button.p-select-button__control").focus()
    page.keyboard.press("ArrowDown")
    page.locator(
        ".p-select-option", has_text=re.compile(rf"^\s*{option}( · .*)?\s*$")
    ).first.click()
