"""Names that `plan --ask` and its process share."""

VARIABLE = "SAFE_LAUNCH_ASKED_ALONE"
"""Environment variable of a process that is only asked, and trains nothing."""


class EndOfAskingError(BaseException):
    """The process can't go on without weights; no handler of the script's is meant to catch it."""
