"""A preparation with nothing to prepare."""
