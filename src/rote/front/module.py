"""A graphed ``nn.Module``."""

from __future__ import annotations

from typing import Any

from .graphed import Graphed


class GraphedModule(Graphed):
    """A graphed ``nn.Module``; attribute writes go to the module."""

    _function: Any

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """That of the module, for ``isinstance``: a graphed module can be a child of another one."""
        return type(self.__dict__.get("_function", self))

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_built" not in own or name in own or name.startswith("__"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._function, name, value)

    def __len__(self) -> int:
        return len(self._function)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(self._function)

    def __getitem__(self, key: Any) -> Any:
        return self._function[key]
