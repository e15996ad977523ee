"""Makes torchvision and timm importable, if they are there at all.

torchvision's wheels from the default index are built for CUDA: beside the CPU build of PyTorch their compiled
operators do not load, and the import of the package fails where it describes them to fake tensors. Then the
operators that the tests use are declared here, with kernels in Python. Such an installation breaks everything
that imports torchvision if it can (transformers does), so ``make`` puts it into a folder beside the other
packages, which only this file puts on the path.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

VISION = ("torchvision", "timm")
FOLDER = Path(sys.prefix) / "vision"
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)
_libraries: list[Any] = []


@cache
def missing() -> str:
    """The package that is not here, or an empty text if there is none."""
    if find_spec("torchvision") is None and FOLDER.is_dir():
        sys.path.append(str(FOLDER))
    absent = [name for name in VISION if find_spec(name) is None]
    if absent:
        return " and ".join(absent)
    if torch.version.cuda is None and not _loads():
        _declare()
    importlib.import_module("timm")
    return ""


def _loads() -> bool:
    """Whether torchvision's compiled operators fit this build of PyTorch."""
    spec = find_spec("torchvision")
    assert spec is not None and spec.origin is not None
    for library in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(library)
            return True
        except OSError:
            continue
    return False


def _declare() -> None:
    library: Any = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
    vision: Any = importlib.import_module("torchvision")
    vision.extension._has_ops = lambda: True
    align: Any = importlib.import_module("torchvision.ops.roi_align")
    align._has_ops = lambda: True
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", align._roi_align.__wrapped__, "CPU")  # not compiled
    torch.library.register_fake(
        "torchvision::roi_align",
        lambda x, rois, scale, height, width, ratio, aligned: x.new_empty(
            (rois.shape[0], x.shape[1], height, width)
        ),
        lib=library,
    )
    _libraries.append(library)  # a library that is collected takes its operators with it


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    overlap = importlib.import_module("torchvision.ops").box_iou(boxes, boxes)
    kept: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        if all(overlap[index, other] <= threshold for other in kept):
            kept.append(index)
    return torch.tensor(kept, dtype=torch.long)
