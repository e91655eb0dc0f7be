"""The paper's published tables as data, and a lint that checks any such table by rule.

Source: arXiv 2505.17508, tables 3 and 5 to 8: accuracy at the last step and the best over training,
Mean@32.
"""

from rpg.report.paper.lint import Finding, lint
from rpg.report.paper.published import Entry, frame, match, published, sampling_error

__all__ = ["Entry", "Finding", "frame", "lint", "match", "published", "sampling_error"]
