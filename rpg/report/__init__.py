"""The summary of a sweep as tables, figure and page (`rpg.report.write`). Its charts are also the dashboard's."""
