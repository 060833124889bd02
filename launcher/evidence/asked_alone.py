"""Names that `plan --ask` and its process share."""

VARIABLE = "SAFE_LAUNCH_ASKED_ALONE"
"""Environment variable of a process that is only asked, and trains nothing."""


class EndOfAskingError(BaseException):
    """The process can't continue without weights; not meant for the script's handlers."""
