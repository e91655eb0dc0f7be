"""From the results database to tables, verdicts, figures and pages.

In: a database and the name of a sweep. Out: a `Summary` with its differences and notes, and files
drawn from it. The dashboard draws the same charts. `paper` holds the published results and checks
such tables by rule. Nothing here runs a training. Read first: summary.py.
"""
