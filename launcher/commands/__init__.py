"""The command line: a launch, and the commands of `registry`, a module each."""
