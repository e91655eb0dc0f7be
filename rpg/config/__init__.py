"""Sparse YAML in, resolved and hashed specifications out.

In: run and sweep files, and overrides from the command line or a form. Out: `RunSpec` objects with
every default filled in, and the identity of each run. Errors name file, line, field, value and what
would be accepted. No file but the configuration is read. Read first: run_spec.py, then
sweep_file.py and sweep_spec.py.
"""
