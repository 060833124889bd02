"""The version of safe-launch."""

VERSION = "0.1.0"
