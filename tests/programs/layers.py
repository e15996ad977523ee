"""Layers of PyTorch that have something of their own: recurrent ones, norms, pools, embeddings, attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, rnn

from .program import Made, batches, frozen, normal, program


def indices(device: torch.device, most: int, *shape: int) -> tuple[Tensor]:
    """Random indices."""
    return (torch.randint(0, most, shape, device=device),)


@program()
def long_short_term_memory(device: torch.device) -> Made:
    """Two layers of LSTM, whose states are arguments and results."""
    model = nn.LSTM(32, 64, 2, batch_first=True).to(device)

    @torch.no_grad()
    def forward(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = model(x, (h, c))
        return y, h, c

    return Made(forward, batches(device, (4, 10, 32), (2, 4, 64), (2, 4, 64)))


@program()
def state_of_both_directions(device: torch.device) -> Made:
    """A GRU in both directions that goes on from where the last call ended."""
    model = nn.GRU(8, 16, bidirectional=True, num_layers=2).to(device)
    kept = dict[str, Any](h=None)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        y, kept["h"] = model(x, kept["h"])
        return y

    return Made(forward, batches(device, (5, 2, 8)), (kept,))


@program(replays=False, code="RT112")
def packed_sequences(device: torch.device) -> Made:
    """An LSTM over sequences that are packed and padded again."""
    model = nn.LSTM(8, 16, batch_first=True).to(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(x, [5, 3], batch_first=True)
        return rnn.pad_packed_sequence(model(packed)[0], batch_first=True)[0]

    return Made(forward, batches(device, (2, 5, 8)))


@program()
def sequences_padded_to_one(device: torch.device) -> Made:
    """Sequences of three lengths are padded to the longest."""
    layer = nn.Linear(8, 8).to(device)

    @torch.no_grad()
    def forward(*sequences: Tensor) -> Tensor:
        return layer(rnn.pad_sequence(list(sequences), batch_first=True))

    return Made(forward, batches(device, (5, 8), (3, 8), (4, 8)))


@program()
def bag_of_embeddings(device: torch.device) -> Made:
    """The mean of embeddings."""
    model = nn.EmbeddingBag(100, 64, mode="mean").to(device)
    return Made(lambda x: model(x), lambda: indices(device, 100, 8, 5))


@program()
def embeddings_of_bounded_norm(device: torch.device) -> Made:
    """Embeddings that are shortened in place when they are looked up."""
    model = nn.Embedding(20, 8, max_norm=1.0).to(device)
    return Made(frozen(lambda x: model(x) * 2), lambda: indices(device, 20, 6), (model,))


@program(replays=False, code="RT304")
def classes_in_clusters(device: torch.device) -> Made:
    """An adaptive softmax, whose rare classes are computed where they occur."""
    model = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10]).to(device)
    return Made(
        frozen(lambda x, label: model(x, label).loss),
        lambda: (normal(device, 8, 16), *indices(device, 20, 8)),
    )


@program()
def norms_of_groups(device: torch.device) -> Made:
    """Convolutions with norms of groups and instances, transposed and shuffled to a larger image."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.ConvTranspose2d(8, 4, 3, 2),
        nn.InstanceNorm2d(4), nn.PixelShuffle(2), nn.Upsample(scale_factor=2),
    ).to(device)  # fmt: skip
    return Made(frozen(model), batches(device, (2, 3, 12, 12)))


@program(replays=False, code="RT304")
def norms_that_keep_statistics(device: torch.device) -> Made:
    """Statistics that are kept by batch and instance norms, with a momentum that counts."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=None), nn.LeakyReLU(0.1), nn.Conv2d(8, 8, 3, groups=4),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True), nn.AdaptiveAvgPool2d(2),
    ).to(device)  # fmt: skip
    return Made(frozen(model), batches(device, (4, 3, 12, 12)), (model,))


@program()
def attention_with_weights(device: torch.device) -> Made:
    """Attention of several heads that gives its weights."""
    model = nn.MultiheadAttention(32, 4, batch_first=True).to(device)
    return Made(frozen(lambda x: model(x, x, x, need_weights=True)), batches(device, (2, 10, 32)))


@program(replays=False, code="RT601")
def encoder_with_padding(device: torch.device) -> Made:
    """An encoder whose fast path sees which places are padding."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(device).eval()

    def inputs() -> tuple[Tensor, Tensor]:
        padding = torch.zeros(2, 10, dtype=torch.bool, device=device)
        padding[0, 7:] = True
        return normal(device, 2, 10, 32), padding

    return Made(frozen(lambda x, padding: model(x, src_key_padding_mask=padding)), inputs)


@program()
def encoder_and_decoder(device: torch.device) -> Made:
    """A transformer whose target is masked causally."""
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True, dropout=0.0).to(device).eval()

    def forward(source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=device)
        return model(source, target, tgt_mask=mask, tgt_is_causal=True)

    return Made(frozen(forward), batches(device, (2, 8, 32), (2, 6, 32)))


@program()
def pruned_and_orthogonal(device: torch.device) -> Made:
    """A layer that is pruned and one whose weight is orthogonal."""
    pruned = nn.Linear(16, 16).to(device)
    prune.l1_unstructured(pruned, "weight", 0.3)
    turned = parametrizations.orthogonal(nn.Linear(16, 16)).to(device)
    return Made(frozen(lambda x: turned(pruned(x))), batches(device, (4, 16)))


@program()
def weight_norm(device: torch.device) -> Made:
    """A layer whose weight is a direction and a length."""
    return Made(frozen(parametrizations.weight_norm(nn.Linear(64, 64)).to(device)), batches(device))


@program()
def several_losses(device: torch.device) -> Made:
    """Losses of many kinds over the same scores."""
    losses = [nn.MultiMarginLoss(), nn.CrossEntropyLoss(label_smoothing=0.1), nn.NLLLoss()]
    pairs = [nn.HuberLoss(), nn.KLDivLoss(reduction="batchmean"), nn.CosineEmbeddingLoss()]

    def measure(x: Tensor, y: Tensor, label: Tensor) -> Tensor:
        one = torch.ones(8, device=device)
        found = [loss(x, label) for loss in losses]
        found += [pairs[0](x, y), pairs[1](x.log_softmax(-1), y.softmax(-1)), pairs[2](x, y, one)]
        return torch.stack(found)

    return Made(measure, lambda: (normal(device, 8, 16), normal(device, 8, 16), *indices(device, 16, 8)))


@program()
def bilinear_and_gated(device: torch.device) -> Made:
    """A bilinear layer, a gated one, and distances of rows."""
    model, gate = nn.Bilinear(8, 8, 16).to(device), nn.GLU()

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return gate(model(x, y)), nn.functional.pdist(x), nn.functional.cosine_similarity(x, y)

    return Made(frozen(forward), batches(device, (6, 8), (6, 8)))
