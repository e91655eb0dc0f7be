"""What runs a sweep on this machine: Prefect flows, processes, servers.

In: resolved sweeps. Out: finished run folders, and Prefect's view of them. `sweep` reads from top
to bottom: prepare, train, evaluate, aggregate, report. `machine` owns slots and child processes,
`prefect` the server, `serve` forms and schedules. Read first: sweep/flow.py.
"""
