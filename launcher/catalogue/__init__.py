"""The known failures: the entries of `presets/failures/`, signatures, and searches.

In: Markdown files with front matter. Out: `KnownFailure` values, matches of a `FailureRecord`.
"""
