"""Of which class an object is; what it says of itself in ``__class__`` may be code of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")


def is_instance(value: object, kinds: type[T] | tuple[type[T], ...]) -> TypeIs[T]:
    """``isinstance`` of an object that may stand for another, and is not asked."""
    return issubclass(type(value), kinds)
