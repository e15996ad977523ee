"""Diffusion models of diffusers: samplers, pipelines, training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import diffusers
import torch
from diffusers.training_utils import EMAModel
from torch import Tensor

Items = Iterator[Any]


def network(device: Any, channels: int = 3) -> Any:
    torch.manual_seed(0)
    model = diffusers.UNet2DModel(
        sample_size=16,
        in_channels=channels,
        out_channels=channels,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
    )
    return model.to(device).eval()


def ddim_loop(wrap: Any, device: Any) -> Items:
    """A DDIM loop: the network is graphed, the scheduler steps outside."""
    model, scheduler = network(device), diffusers.DDIMScheduler()
    predict = wrap(model)
    scheduler.set_timesteps(10)
    with torch.no_grad():
        while True:
            sample = torch.randn(1, 3, 16, 16).to(device)
            for t in scheduler.timesteps:
                noise = predict(sample, t).sample
                sample = scheduler.step(noise, t, sample).prev_sample
                yield sample


def ddpm_step(wrap: Any, device: Any) -> Items:
    """A DDPM step as one function: the network and the scheduler, which draws noise."""
    model, scheduler = network(device), diffusers.DDPMScheduler()
    scheduler.set_timesteps(10)

    @wrap
    @torch.no_grad()
    def step(sample: Tensor, t: Tensor) -> Tensor:
        return scheduler.step(model(sample, t).sample, t, sample).prev_sample

    while True:
        sample = torch.randn(1, 3, 16, 16).to(device)
        for t in scheduler.timesteps:
            sample = step(sample, t)
            yield sample


def euler_loop(wrap: Any, device: Any) -> Items:
    """An Euler sampler with guidance; a step is one function, and the sampler counts its steps."""
    model, scheduler = network(device), diffusers.EulerDiscreteScheduler()

    @wrap
    @torch.no_grad()
    def step(latents: Tensor, t: Tensor) -> Tensor:
        scaled = scheduler.scale_model_input(torch.cat([latents] * 2), t)
        plain, guided = model(scaled, t).sample.chunk(2)
        return scheduler.step(plain + 7.5 * (guided - plain), t, latents).prev_sample

    while True:
        scheduler.set_timesteps(10, device=device)
        latents = torch.randn(1, 3, 16, 16).to(device) * scheduler.init_noise_sigma
        for t in scheduler.timesteps:
            latents = step(latents, t)
            yield latents


def whole_pipeline(wrap: Any, device: Any) -> Items:
    """A DDIM pipeline of four steps, called as a whole."""
    pipeline = diffusers.DDIMPipeline(unet=network(device), scheduler=diffusers.DDIMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    sample = wrap(pipeline)
    while True:
        yield sample(batch_size=1, num_inference_steps=4, output_type="np").images


def pipeline_with_a_graphed_network(wrap: Any, device: Any) -> Items:
    """A DDPM pipeline of six steps whose network alone is graphed."""
    pipeline = diffusers.DDPMPipeline(unet=network(device), scheduler=diffusers.DDPMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    pipeline.unet.forward = wrap(pipeline.unet.forward)
    generator = torch.Generator().manual_seed(3)
    while True:
        yield pipeline(batch_size=1, generator=generator, num_inference_steps=6, output_type="np").images


def autoencoder(wrap: Any, device: Any) -> Items:
    """AutoencoderKL: to latents, drawn from their distribution, and back."""
    vae = (
        diffusers.AutoencoderKL(
            block_out_channels=(8, 16),
            norm_num_groups=4,
            latent_channels=4,
            sample_size=32,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        )
        .to(device)
        .eval()
    )

    @wrap
    @torch.no_grad()
    def there_and_back(image: Tensor) -> tuple[Tensor, Tensor]:
        latents = vae.encode(image).latent_dist.sample() * vae.config.scaling_factor
        return latents, vae.decode(latents / vae.config.scaling_factor).sample

    while True:
        yield there_and_back(torch.rand(1, 3, 32, 32).to(device) * 2 - 1)


def training_with_average(wrap: Any, device: Any) -> Items:
    """Training on noise at random times, with a schedule and an average of the weights that warms up."""
    model, scheduler = network(device).train(), diffusers.DDPMScheduler(1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = diffusers.optimization.get_cosine_schedule_with_warmup(optimizer, 50, 5_000)
    average = EMAModel(model.parameters(), decay=0.999, use_ema_warmup=True)

    @wrap
    def step(images: Tensor) -> Tensor:
        noise = torch.randn_like(images)
        times = torch.randint(0, 1000, (len(images),), device=images.device)
        found = model(scheduler.add_noise(images, noise, times), times).sample
        loss = torch.nn.functional.mse_loss(found, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        return loss.detach()

    while True:
        yield step(torch.rand(2, 3, 16, 16).to(device)), model.conv_in, average.shadow_params[:2]
