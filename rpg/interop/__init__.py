"""Other people's trainers, data and tools.

In: their scripts, settings, logs, data files, leaderboards. Out: files to train with
(`adopting`), run folders (`importing`), our losses in their loops (`integrations`), metrics in
their trackers (`tracking`). Nothing here trains or judges. Read first: adopting/__init__.py.
"""
