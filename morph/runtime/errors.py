"""Errors as text."""


def first_line(error: BaseException) -> str:
    """Return an error in one line, with its type."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
