"""What `plan --ask` and the one process that it runs have in common."""

VARIABLE = "SAFE_LAUNCH_ASKED_ALONE"
"""Environment variable of a process that is only asked, and trains nothing."""


class EndOfAskingError(BaseException):
    """The process can't go on without weights; no handler of the script's is meant to catch it."""
