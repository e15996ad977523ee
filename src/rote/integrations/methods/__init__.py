"""Methods of other libraries' objects, by which rote enters them: found by name, put in place graphed."""

from .hooks import Hook, Library, held_by
