"""docs/findings.md: the figures and tables of each sweep and study that it has."""
