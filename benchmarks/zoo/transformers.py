"""Language, vision and speech models of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers as tr
from torch import Tensor

Items = Iterator[Any]


def llama(device: Any, **more: Any) -> Any:
    config = tr.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
        **more,
    )
    return tr.LlamaForCausalLM(config).to(device).eval()


def decode_with_a_dynamic_cache(wrap: Any, device: Any) -> Items:
    """Greedy decoding with a DynamicCache, a new one for each prompt."""
    model = llama(device)
    forward = wrap(model)
    with torch.no_grad():
        while True:
            cache = tr.DynamicCache(config=model.config)
            tokens = torch.randint(2, 128, (1, 8)).to(device)
            for _ in range(16):
                out = forward(input_ids=tokens, past_key_values=cache, use_cache=True)
                tokens = out.logits[:, -1:].argmax(-1)
                yield tokens, out.logits[:, -1]


def decode_with_a_static_cache(wrap: Any, device: Any) -> Items:
    """Decoding with a StaticCache that is reset for each prompt, and positions as tensors."""
    model = llama(device)
    cache = tr.StaticCache(config=model.config, max_cache_len=64)

    @wrap
    def step(token: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        out = model(input_ids=token, position_ids=position[None], past_key_values=cache, use_cache=True)
        return out.logits[:, -1:].argmax(-1), out.logits

    with torch.no_grad():
        while True:
            cache.reset()
            prompt = torch.randint(2, 128, (1, 8)).to(device)
            places = torch.arange(8, device=device)
            out = model(input_ids=prompt, position_ids=places[None], past_key_values=cache, use_cache=True)
            token, position = out.logits[:, -1:].argmax(-1), places[-1:] + 1
            for _ in range(24):
                token, logits = step(token, position)
                position = position + 1
                yield token, logits


def generate_greedy(wrap: Any, device: Any) -> Items:
    """``generate()`` as a whole, greedy."""
    generate = wrap(llama(device).generate)
    while True:
        prompt = torch.randint(2, 128, (1, 8)).to(device)
        yield generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)


def generate_sampling(wrap: Any, device: Any) -> Items:
    """``generate()`` with sampling; the model is graphed inside of it."""
    model = llama(device)
    model.forward = wrap(model.forward)
    while True:
        prompt = torch.randint(2, 128, (1, 8)).to(device)
        yield model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=8,
            do_sample=True,
            top_k=20,
            top_p=0.9,
        )


def generate_beams(wrap: Any, device: Any) -> Items:
    """``generate()`` with four beams and a static cache."""
    model = llama(device)
    model.forward = wrap(model.forward)
    while True:
        prompt = torch.randint(2, 128, (1, 8)).to(device)
        yield model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, num_beams=4, do_sample=False
        )


def bert_training(wrap: Any, device: Any) -> Items:
    """Fine-tuning BERT with AdamW and a linear schedule with warm-up."""
    config = tr.BertConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=3,
    )
    model = tr.BertForSequenceClassification(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    schedule = tr.get_linear_schedule_with_warmup(optimizer, 100, 10_000)

    @wrap
    def step(batch: dict[str, Tensor]) -> Tensor:
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    while True:
        ids = torch.randint(1, 128, (4, 16))
        mask = (torch.arange(16) < torch.randint(8, 17, (4, 1))).long()
        batch = {"input_ids": ids, "attention_mask": mask, "labels": torch.randint(3, (4,))}
        yield step({name: value.to(device) for name, value in batch.items()}), model.classifier
        schedule.step()


def bert_embeddings(wrap: Any, device: Any) -> Items:
    """Sentence embeddings: batches of texts padded to their longest, mean pooling."""
    config = tr.BertConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    model = tr.BertModel(config).to(device).eval()

    @wrap
    @torch.inference_mode()
    def embed(batch: tr.BatchEncoding) -> Tensor:
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None].float()
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=-1)

    while True:
        lengths = torch.randint(4, 9, (4, 1))
        ids = torch.randint(1, 128, (4, int(lengths.max())))
        mask = (torch.arange(ids.shape[1]) < lengths).long()
        yield embed(tr.BatchEncoding({"input_ids": ids * mask, "attention_mask": mask}).to(device))


def whisper(device: Any) -> Any:
    config = tr.WhisperConfig(
        vocab_size=128,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return tr.WhisperForConditionalGeneration(config).to(device).eval()


def whisper_transcription(wrap: Any, device: Any) -> Items:
    """Whisper: the encoder once, then the decoder token by token over an EncoderDecoderCache."""
    model = whisper(device)
    encode, decode = wrap(model.get_encoder()), wrap(model)
    with torch.no_grad():
        while True:
            encoded = encode(torch.randn(1, 16, 100).to(device))
            cache, token = None, torch.ones(1, 1, dtype=torch.long, device=device)
            for _ in range(10):
                out = decode(
                    encoder_outputs=encoded, decoder_input_ids=token, past_key_values=cache, use_cache=True
                )
                cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
                yield token, out.logits


def clip_similarity(wrap: Any, device: Any) -> Items:
    """CLIP: images against texts, as probabilities."""
    config = tr.CLIPConfig(
        text_config={
            "vocab_size": 99,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 16,
            "eos_token_id": 98,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 8,
        },
        projection_dim=16,
    )
    model = wrap(tr.CLIPModel(config).to(device).eval())
    ids = torch.randint(1, 98, (3, 8)).to(device)
    ids[:, -1] = 98
    with torch.no_grad():
        while True:
            pixels = torch.randn(2, 3, 32, 32).to(device)
            out = model(input_ids=ids, pixel_values=pixels, attention_mask=torch.ones_like(ids))
            yield out.logits_per_image.softmax(1), out.image_embeds


def vit_classification(wrap: Any, device: Any) -> Items:
    """ViT, one image at a time, the label by its name."""
    config = tr.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    model = tr.ViTForImageClassification(config).to(device).eval()

    @wrap
    @torch.no_grad()
    def classify(pixels: Tensor) -> tuple[Tensor, str]:
        logits = model(pixel_values=pixels).logits
        return logits, model.config.id2label[logits.argmax(-1).item()]

    while True:
        yield classify(torch.randn(1, 3, 32, 32).to(device))


def wav2vec2_recognition(wrap: Any, device: Any) -> Items:
    """wav2vec2 with a CTC head, on clips of one length."""
    config = tr.Wav2Vec2Config(
        vocab_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_stride=(5, 4),
        conv_kernel=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    model = wrap(tr.Wav2Vec2ForCTC(config).to(device).eval())
    with torch.no_grad():
        while True:
            logits = model(torch.randn(1, 800).to(device)).logits
            yield logits, logits.argmax(-1).unique_consecutive()


def t5_training(wrap: Any, device: Any) -> Items:
    """T5 with Adafactor, forward graphed, the rest outside."""
    config = tr.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    model = tr.T5ForConditionalGeneration(config).to(device).train()
    optimizer = tr.Adafactor(
        model.parameters(), scale_parameter=True, relative_step=True, warmup_init=True, lr=None
    )
    forward = wrap(model)
    while True:
        loss = forward(
            input_ids=torch.randint(1, 64, (2, 10)).to(device), labels=torch.randint(1, 64, (2, 6)).to(device)
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), model.shared
