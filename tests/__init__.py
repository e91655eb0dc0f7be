"""A package, so that it comes before the `tests` that some libraries install."""
