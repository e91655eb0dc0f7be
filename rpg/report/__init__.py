"""The summary of a sweep as tables, figure and page (`rpg.report.sweep_report`). Its charts are also the dashboard's."""
