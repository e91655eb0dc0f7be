"""What is dumped, one module for each part. A part is a function that writes files into a folder.

A part uses commands, `rpg.__all__`, the public classes that the documentation imports, and files.
It uses nothing that may move from one revision to the next.
"""
