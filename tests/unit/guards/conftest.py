"""The tests of the guards each begin as a new worker."""

from support.new_worker import new_worker  # noqa: F401 - a fixture
