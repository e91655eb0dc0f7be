"""Models compared from the files of any evaluation harness.

In: files of graded samples. Out: paired differences with verdicts, as a table, a figure, a page.
Needs neither torch nor a database. Read first: rows.py, then sources.py, pairing.py and judging.py.
"""
