"""``python -m rote``."""

from .cli import main

if __name__ == "__main__":
    main()
