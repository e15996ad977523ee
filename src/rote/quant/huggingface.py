"""Quantization through transformers: ``quantization_config``, ``from_pretrained``, ``save_pretrained``.

Importing this module registers the method ``rote_duquant`` with transformers, which has to be installed. Then

    quantize_(model, config, stats)
    attach(model)                              # a model of transformers, quantized in place
    model.save_pretrained(folder)
    AutoModel.from_pretrained(folder)          # quantized, and ready to run

and, for configurations that need no calibration, dense checkpoints are quantized as they are loaded:

    AutoModel.from_pretrained(name, quantization_config=RoteDuQuantConfig.of(config))

A checkpoint's ``config.json`` is checked as the metadata of :mod:`~.saving.checkpoint` are. Transforms that
layers share are written once for each layer, because transformers wants every tensor under its own name.
"""

from __future__ import annotations

import json
from typing import Any, cast

import torch
from torch import nn
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from ..base import MisuseError
from .config import DuQuantConfig
from .converting import quantize_
from .layer import DuQuantLinear, fuse_, replace
from .saving import check_values, empty_layers, entries_of, read_entries

METHOD = "rote_duquant"


@register_quantization_config(METHOD)
class RoteDuQuantConfig(QuantizationConfigMixin):
    """The entry ``quantization_config`` of a model's ``config.json``.

    Args:
        configs: Configurations, as JSON values.
        layers: The quantized layers; None quantizes a dense checkpoint with the first configuration.
        include: Patterns of the layers that are then quantized.
        exclude: Patterns of layers that then stay as they are.
        quant_method: ``"rote_duquant"``.
    """

    def __init__(
        self,
        configs: list[Any],
        layers: list[Any] | None = None,
        include: list[str] | None = None,
        exclude: list[str] | None = None,
        quant_method: str = METHOD,
    ) -> None:
        if quant_method != METHOD:
            raise MisuseError(f"quant_method={quant_method!r} must be {METHOD!r}")
        self.quant_method: Any = quant_method
        self.configs, self.layers = configs, layers
        self.include, self.exclude = include, exclude

    @classmethod
    def of(
        cls, config: DuQuantConfig, *, include: list[str] | None = None, exclude: list[str] | None = None
    ) -> RoteDuQuantConfig:
        """Quantize a dense checkpoint while it is loaded.

        Args:
            config: One that needs no calibration.
            include: Patterns of the layers to quantize; None is all.
            exclude: Patterns of layers that stay as they are; the head is the usual one.

        Raises:
            MisuseError: The configuration needs calibration.
        """
        if config.needs_calibration:
            raise MisuseError(
                "a configuration that needs calibration cannot be applied while loading: load the dense "
                "model, calibrate, quantize_, attach and save_pretrained"
            )
        return cls([json.loads(config.to_json())], include=include, exclude=exclude)


@register_quantizer(METHOD)
class RoteDuQuantizer(HfQuantizer):
    """Builds the quantized layers of a checkpoint before its tensors are loaded."""

    quantization_config: Any

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        if self.pre_quantized:
            build_skeleton(model, self.quantization_config)
        return model

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        settings = self.quantization_config
        if settings.layers is None:
            config = DuQuantConfig.from_json(json.dumps(settings.configs[0]))
            quantize_(model, config, include=settings.include, exclude=settings.exclude)
            attach(model)
        else:
            _check_loaded(model)
        layers = _quantized_layers(model).values()
        for layer in layers:
            layer.refresh()  # a checkpoint lacks what is derived from the state
        if any(layer.config.fuse_groups for layer in layers):
            fuse_(model)
        return model

    def get_state_dict_and_metadata(self, model: Any) -> Any:
        """The state with a copy of its own for each name of a shared transform."""
        state: dict[str, torch.Tensor] = dict(model.state_dict())
        for name, layer in _quantized_layers(model).items():
            for key, value in layer.transform.state_dict(prefix=f"{name}.transform.").items():
                state[key] = value.clone()
        return state, {}

    def is_serializable(self) -> Any:
        """Codes are saved as they are."""
        return True

    @property
    def is_trainable(self) -> Any:
        """Codes are not trained."""
        return False

    @property
    def is_compileable(self) -> bool:
        """Layers compile without graph breaks."""
        return True


def attach(model: Any) -> None:
    """Make ``save_pretrained`` of a quantized model of transformers save it quantized.

    Raises:
        MisuseError: Nothing in the model is quantized.
    """
    configs, entries = entries_of(model)
    if not entries:
        raise MisuseError("attach: no layer of the model is quantized; call quantize_ first")
    settings: Any = cast(Any, RoteDuQuantConfig)(configs, [vars(entry) for entry in entries])
    model.config.quantization_config = settings
    quantizer = RoteDuQuantizer(settings)
    quantizer.pre_quantized = True
    model.hf_quantizer = quantizer
    model.is_quantized = True
    model.quantization_method = METHOD


def _check_loaded(model: nn.Module) -> None:
    """Refuse values that no checkpoint has: transformers makes up the tensors that one lacks."""
    try:
        check_values(_quantized_layers(model), model.state_dict())
    except MisuseError as error:
        raise MisuseError(
            f"{error}: the checkpoint lacks it, or was changed (save it again after attach(model))"
        ) from error


def build_skeleton(model: nn.Module, settings: Any) -> None:
    """Put empty quantized layers in the places that a checkpoint names, if its entries fit the model."""
    configs, entries = read_entries({"configs": settings.configs, "layers": settings.layers})
    for name, layer in empty_layers(model, configs, entries, types_of_model=True).items():
        layer.hold_plain()
        replace(model, model.get_submodule(name), layer)


def _quantized_layers(model: nn.Module) -> dict[str, DuQuantLinear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, DuQuantLinear)}
