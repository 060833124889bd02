"""Pages on what no message tells, as text."""
