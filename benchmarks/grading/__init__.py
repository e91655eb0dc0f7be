"""Graders of mathematical answers, measured: an exam in public (README.md), and answers made from
gold answers."""
