"""The benchmark set: which programs, under which names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Row:
    """One program of the set.

    Attributes:
        name: In tables and files; ``--only`` takes a prefix of it.
        title: For the docs.
        target: ``file:function`` in ``benchmarks/targets``.
        arguments: Of that function.
    """

    name: str
    title: str
    target: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def full_target(self) -> str:
        """As the command line takes it."""
        return f"{__package__}.targets.{self.target}"

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
        Row(f"pi0-{n}view{'s' * (n > 1)}", f"PI0, {n} view{'s' * (n > 1)}", "pi0:build", {"views": n})
        for n in (1, 2, 3)
    ),
)  # fmt: skip
"""The lightest first."""
