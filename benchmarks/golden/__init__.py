"""Do two revisions do the same? What commands print, files hold and losses compute, dumped and compared."""
