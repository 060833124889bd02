"""Facts of single devices."""
