"""Layers and models as libraries write them, built from their configurations with random weights."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from ..case import Group
from .values import rand

group = Group()


def tokens(device, *shape, high=64):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(0)).to(device)


def built(device, make):
    torch.manual_seed(0)
    return make().to(device).eval()


def without_gradients(model, **options):
    def fn(*args):
        with torch.no_grad():
            return model(*args, **options)

    return fn


SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip


@group.library()
def llama_prefill(device):
    from transformers import LlamaConfig, LlamaForCausalLM

    model = built(device, lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)))
    return without_gradients(model, use_cache=False), (tokens(device, 1, 8),)


@group.library()
def gemma_prefill(device):
    from transformers import GemmaConfig, GemmaForCausalLM

    config = GemmaConfig(**SIZES, num_key_value_heads=1, head_dim=8)
    return without_gradients(built(device, lambda: GemmaForCausalLM(config)), use_cache=False), (
        tokens(device, 1, 8),
    )


@group.library()
def bert_encoder(device):
    from transformers import BertConfig, BertModel

    model = built(device, lambda: BertModel(BertConfig(**SIZES)))
    return without_gradients(model), (tokens(device, 2, 8),)


@group.library()
def gpt2_prefill(device):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    model = built(device, lambda: GPT2LMHeadModel(config))
    return without_gradients(model, use_cache=False), (tokens(device, 1, 8),)


@group.library()
def vision_transformer(device):
    from transformers import ViTConfig, ViTModel

    sizes = {key: SIZES[key] for key in SIZES if key not in ("vocab_size", "max_position_embeddings")}
    model = built(device, lambda: ViTModel(ViTConfig(**sizes, image_size=32, patch_size=8)))
    return without_gradients(model), (rand(device, 1, 3, 32, 32),)


@group.library()
def siglip_vision(device):
    from transformers import SiglipVisionConfig, SiglipVisionModel

    sizes = {key: SIZES[key] for key in SIZES if key not in ("vocab_size", "max_position_embeddings")}
    model = built(device, lambda: SiglipVisionModel(SiglipVisionConfig(**sizes, image_size=32, patch_size=8)))
    return without_gradients(model), (rand(device, 1, 3, 32, 32),)


@group
def residual_network(device):
    class Block(nn.Module):
        def __init__(self, width, out, stride):
            super().__init__()
            self.one = nn.Conv2d(width, out, 3, stride, 1, bias=False)
            self.norm = nn.BatchNorm2d(out)
            self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.last = nn.BatchNorm2d(out)
            self.skip = nn.Conv2d(width, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

        def forward(self, x):
            y = F.relu(self.norm(self.one(x)), inplace=True)
            y = self.last(self.two(y))
            y += self.skip(x)
            return F.relu(y, inplace=True)

    def make():
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)]
        return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Block(8, 8, 1), Block(8, 16, 2), *head)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group
def drop_path_of_timm(device):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.proj = nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x):
            y = self.proj(self.norm(x))
            shape = (x.shape[0],) + (1,) * (x.ndim - 1)
            keep = x.new_empty(shape).bernoulli_(0.9).div_(0.9)
            return x + y * keep

    torch.manual_seed(0)
    return Layer().to(device).train(), (rand(device, 4, 8),)


@group
def positions_interpolated_by_python_sizes(device):
    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Parameter(torch.zeros(1, 8, 4, 4))

        def forward(self, x):
            return x + F.interpolate(self.positions, size=x.shape[-2:], mode="bilinear")

    return without_gradients(built(device, Embedding)), (rand(device, 1, 8, 6, 6),)


@group
def timesteps_embedded_by_diffusers(device):
    class Timesteps(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(16, 16)

        def forward(self, x, t):
            if not torch.is_tensor(t):
                t = torch.tensor([t], dtype=torch.long, device=x.device)  # stops
            half = 8
            exponent = -math.log(10000) * torch.arange(half, dtype=torch.float32, device=x.device) / half
            angles = t[:, None].float() * exponent.exp()[None]
            return x + self.proj(torch.cat([angles.sin(), angles.cos()], -1))

    return without_gradients(built(device, Timesteps)), (rand(device, 1, 16), 10)


@group
def timesteps_given_as_a_tensor(device):
    def fn(x, t):
        exponent = -math.log(10000) * torch.arange(8, dtype=torch.float32, device=x.device) / 8
        angles = t[:, None].float() * exponent.exp()[None]
        return x + torch.cat([angles.sin(), angles.cos()], -1)

    return fn, (rand(device, 1, 16), torch.tensor([10], device=device))


@group
def window_partition_of_swin(device):
    def fn(x):
        batch, height, width, channels = x.shape
        x = torch.roll(x, shifts=(-2, -2), dims=(1, 2))
        x = x.view(batch, height // 4, 4, width // 4, 4, channels)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 16, channels)

    return fn, (rand(device, 1, 8, 8, 4),)


@group
def attention_mask_filled_by_length(device):
    def fn(x, lengths):
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        for row, length in enumerate(lengths):
            mask[row, length:] = False  # stops
        return x * mask[..., None]

    return fn, (rand(device, 2, 6, 4), torch.tensor([3, 5], device=device))


@group
def attention_mask_by_comparison(device):
    def fn(x, lengths):
        mask = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
        return x * mask[..., None]

    return fn, (rand(device, 2, 6, 4), torch.tensor([3, 5], device=device))


@group
def greedy_decoding_to_the_end_token(device):
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell, self.head = nn.Embedding(16, 8), nn.GRUCell(8, 8), nn.Linear(8, 16)

        def forward(self, h):
            token = torch.zeros(1, dtype=torch.long, device=h.device)
            out = []
            for _ in range(6):
                h = self.cell(self.embed(token), h)
                token = self.head(h).argmax(-1)
                out.append(token)
                if token.item() == 3:  # stops
                    break
            return torch.stack(out)

    return without_gradients(built(device, Decoder)), (rand(device, 1, 8),)


@group
def greedy_decoding_of_fixed_length(device):
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell, self.head = nn.Embedding(16, 8), nn.GRUCell(8, 8), nn.Linear(8, 16)

        def forward(self, h):
            token = torch.zeros(1, dtype=torch.long, device=h.device)
            out = []
            for _ in range(6):
                h = self.cell(self.embed(token), h)
                token = self.head(h).argmax(-1)
                out.append(token)
            return torch.stack(out)

    return without_gradients(built(device, Decoder)), (rand(device, 1, 8),)


@group
def lstm_over_a_sequence(device):
    model = built(device, lambda: nn.LSTM(8, 8, batch_first=True))
    return without_gradients(model), (rand(device, 2, 6, 8),)


@group
def packed_sequence(device):
    model = built(device, lambda: nn.LSTM(8, 8, batch_first=True))

    def fn(x, lengths):
        with torch.no_grad():
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), True, False)  # stops
            return model(packed)[0].data.sum()

    return fn, (rand(device, 2, 6, 8), torch.tensor([3, 5], device=device))


@group
def scaled_dot_product_attention_layer(device):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

    return without_gradients(built(device, Attention)), (rand(device, 2, 6, 16),)


@group
def loss_scaled_by_hand(device):
    torch.manual_seed(0)
    model = nn.Linear(4, 4).to(device)

    def fn(x):
        model.zero_grad(set_to_none=False)
        loss = model(x).square().mean() * 1024
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss.detach(), norm

    return fn, (rand(device, 8, 4),)


@group
def gradients_checked_for_infinity(device):
    torch.manual_seed(0)
    model = nn.Linear(4, 4).to(device)

    def fn(x):
        model.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        for parameter in model.parameters():
            if not torch.isfinite(parameter.grad).all():  # stops
                parameter.grad.zero_()
        return loss.detach()

    return fn, (rand(device, 8, 4),)
