"""Do two revisions do the same?

What commands print, what files hold and what losses compute is dumped and compared.
"""
