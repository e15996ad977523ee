"""Where episodes lie: each is written when it ends, so a run that is cut off goes on where it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .episodes import Episode


@dataclass(frozen=True)
class Shelf:
    """The episodes that one policy has played in one way, and what its process says of itself.

    Attributes:
        folder: Of one policy with one kind of weights, for all ways.
        way: How the policy runs.
    """

    folder: Path
    way: str

    @property
    def task(self) -> Path:
        """What the process has to do."""
        return self._file("task.json")

    def missing(self, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """Those of which no episode lies here."""
        return tuple(seed for seed in seeds if not self._file(f"{seed}.json").exists())

    def put(self, episode: Episode, row: dict[str, Any]) -> None:
        """Write an episode. It lies here once its row does, which comes last."""
        arrays: dict[str, Any] = {"actions": episode.actions, "seconds": np.array(episode.seconds)}
        if episode.pictures:
            arrays["pictures"] = np.stack(episode.pictures)
        np.savez(self._file(f"{episode.seed}.npz"), **arrays)
        self._write(f"{episode.seed}.json", row)

    def tell(self, told: dict[str, Any]) -> None:
        """Write what the process says of itself."""
        self._write("told.json", told)

    def told(self) -> dict[str, Any]:
        """What the last process said of itself."""
        return json.loads(self._file("told.json").read_text())

    def episode(self, seed: int) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """The row, and ``actions``, ``seconds`` and perhaps ``pictures``."""
        with np.load(self._file(f"{seed}.npz")) as arrays:
            return json.loads(self._file(f"{seed}.json").read_text()), dict(arrays)

    def _file(self, name: str) -> Path:
        return self.folder / f"{self.way}-{name}"

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """A file is there as a whole, or not at all."""
        half = self._file("half")
        half.write_text(json.dumps(content))
        half.replace(self._file(name))
