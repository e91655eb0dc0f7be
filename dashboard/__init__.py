"""Streamlit pages over stored results: no torch, no flows, nothing computed twice.

In: the results database and run folders. Out: pages with the numbers that `rpg report` prints. Read
first: app.py, then view.py. A page is NAME_page.py with a function page(view), and NAME in
app.NAMES.
"""
