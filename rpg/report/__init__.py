"""The summary of a sweep as tables, figure and page (`rpg.report.sweep_report`); the dashboard
draws the same charts."""
