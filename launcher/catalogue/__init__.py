"""Known failures: the entries of `presets/failures/`, their signatures, and searches.

In: Markdown files with front matter. Out: `KnownFailure` values, matches of a `FailureRecord`.
"""
