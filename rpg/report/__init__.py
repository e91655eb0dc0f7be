"""The summary of a sweep as tables, figure and page. Its charts are also the dashboard's."""

from rpg.report.write import print_report, write_report

__all__ = ["print_report", "write_report"]
