"""The benchmark set: which programs, under which names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

BENCH = ("rote", "bench")
"""The command that measures most of them."""


@dataclass(frozen=True)
class Row:
    """One program of the set.

    Attributes:
        name: In tables and files; ``--only`` takes a prefix of it.
        title: For the docs.
        target: ``file:function`` in ``benchmarks/targets``.
        arguments: Of that function.
        package: Whose version makes it another program: figures of each version are kept.
        runner: The command that measures it.
    """

    name: str
    title: str
    target: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    package: str | None = None
    runner: tuple[str, ...] = BENCH

    @property
    def full_target(self) -> str:
        """As the command line takes it."""
        return f"{__package__}.targets.{self.target}"

    def command(self) -> list[str]:
        """The module that measures it, with its first arguments."""
        return [*self.runner, self.full_target]

    def key(self, versions: dict[str, Any]) -> str:
        """Its name in files of results.

        Args:
            versions: By package.
        """
        return f"{self.name} {self.package} {versions[self.package]}" if self.package else self.name

    def builder(self) -> Callable[..., Any]:
        """The function that makes it."""
        module, _, function = self.full_target.partition(":")
        return getattr(import_module(module), function)

    def build(self, **more: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The callable and its arguments."""
        return self.builder()(**self.arguments, **more)


ROWS = (
    *(
        Row(f"chain-{n}", f"chain of {n:,} tiny kernels", "chains:build", {"length": n})
        for n in (10, 100, 1000)
    ),
    Row("mobilenet", "MobileNetV2, one image", "vision:mobilenet"),
    Row("resnet50", "ResNet-50, one image", "vision:resnet50"),
    Row(
        "batch-sizes",
        "128 batch sizes in random order",
        "batch_sizes:stream",
        runner=("benchmarks.stream",),
    ),
    Row("linear-sgd", "training: Linear(1024), SGD", "training:linear_sgd"),
    *(
        Row(
            f"adamw-{kind}",
            f"training: small transformer, AdamW {kind}",
            "training:transformer",
            {"flavour": kind},
        )
        for kind in ("fused", "foreach")
    ),
    Row("rnnt", "RNN-T greedy decode", "rnnt:build"),
    *(
        Row(f"llama-batch{n}", f"decode step of a 1B Llama, batch {n}", "llama:build", {"batch": n})
        for n in (1, 8)
    ),
    Row("unet", "U-Net denoise step", "unet:build"),
    Row("detector", "Mask R-CNN, one image", "detector:build"),
    Row("bert", "training: BERT-base, batch 16, AdamW fused", "training:bert"),
    *(
        Row(f"pi0-{views.replace(' ', '')}", f"PI0, {views}", "pi0:build", {"views": n}, "transformers")
        for n, views in enumerate(("1 view", "2 views", "3 views"), 1)
    ),
)  # fmt: skip
"""The lightest first."""
