"""Pure torch functions: the loss of any algorithm, its parts, the advantages. No effects, no
configuration files."""
