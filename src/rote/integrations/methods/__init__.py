"""Methods of other libraries' objects, by which rote enters them: found by name, put in place graphed."""

from .hooks import Hook, Library, held_by
from .torch_private import as_written

__all__ = ["Hook", "Library", "as_written", "held_by"]
