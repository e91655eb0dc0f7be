"""The one base of all errors that are about what a person did or has, not about a bug of ours."""


class UserError(Exception):
    """`str(error)` is the whole message: it names what is wrong and what would be accepted. No traceback is needed."""
