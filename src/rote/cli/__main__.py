"""``python -m rote.cli``."""

from .entry import main

main()
