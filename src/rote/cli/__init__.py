"""The command line: ``rote COMMAND ...``, one file for each command."""
