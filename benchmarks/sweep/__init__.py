"""The sweep: every setting that a plan may choose, against one process that sees all samples."""
