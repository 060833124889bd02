"""Names shared by `plan --ask` and its process."""

VARIABLE = "SAFE_LAUNCH_ASKED_ALONE"
"""Environment variable of a process that only answers a query and trains nothing."""


class EndOfQueryError(BaseException):
    """The process can't continue without weights; a script's handlers must not catch this."""
