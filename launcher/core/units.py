"""Units of memory, in bytes."""

GIB = 2**30
MIB = 2**20
