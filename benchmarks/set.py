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
        needs_gpu: It has kernels that no CPU runs.
    """

    name: str
    title: str
    target: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    package: str | None = None
    runner: tuple[str, ...] = BENCH
    needs_gpu: bool = False

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


def _llama(batch: int) -> Row:
    return Row(
        f"llama-batch{batch}", f"decode step of a 1B Llama, batch {batch}", "llama:build", {"batch": batch}
    )


def _pi0(views: int) -> Row:
    count = "1 view" if views == 1 else f"{views} views"
    return Row(
        f"pi0-{count.replace(' ', '')}", f"PI0, {count}", "pi0:build", {"views": views}, "transformers"
    )


ROWS = (
    *(
        Row(f"chain-{n}", f"chain of {n:,} tiny kernels", "chains:build", {"length": n})
        for n in (10, 100, 1000)
    ),
    Row("mobilenet", "MobileNetV2, one image", "vision:mobilenet"),
    Row("resnet50", "ResNet-50, one image", "vision:resnet50"),
    _llama(1),
    _pi0(2),
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
    Row("unet", "U-Net denoise step", "unet:build"),
    Row("triton", "24 blocks with kernels of Triton", "kernels:build", needs_gpu=True),
    Row(
        "batch-sizes",
        "128 batch sizes in random order",
        "batch_sizes:stream",
        runner=("benchmarks.stream",),
    ),
    Row("rnnt", "RNN-T greedy decode", "rnnt:build"),
    _llama(8),
    _pi0(1),
    _pi0(3),
    Row("bert", "training: BERT-base, batch 16, AdamW fused", "training:bert"),
    Row("detector", "Mask R-CNN, one image", "detector:build"),
)
"""Those that tell most first, since time may run out."""
