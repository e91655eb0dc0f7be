"""The machine below everything else: processes, what computed a result, and who may connect.

In: commands to start, requests to answer. Out: children that end with their parent
(`processes`, `fork_server`), the sources and packages behind a number (`provenance`), access
control of a port (`web`). Nothing here knows about runs or losses. Read first: processes.py.
"""
