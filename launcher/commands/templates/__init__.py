"""The files of `scripts/` for clusters, filled in for a job."""
