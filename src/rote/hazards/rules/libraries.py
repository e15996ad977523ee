"""Libraries: idioms of transformers, diffusers, timm and torchvision, and torch.compile inside."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

GENERATE = Rule(
    "RT701",
    "text generation inside the call",
    "Graph one decoding step with a StaticCache and position_ids as a tensor, and loop outside.",
    Severity.STOPS,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``model.generate(...)`` of transformers inside the call.

    Why: Each token ends in a host read: the stopping criteria, the padding checks, the cache's length.

    Limits: Any method called ``generate`` with tensors among its arguments is reported.

    Tried: With transformers 5.23.0 ``generate`` of 4 tokens falls into 9 segments with a read after each;
    one step with ``StaticCache`` replays from one segment without islands.

    Bad::

        return self.model.generate(ids, max_new_tokens=8)

    Good::

        return self.model(ids, past_key_values=cache, position_ids=positions).logits
    """,
)
DYNAMIC_CACHE = Rule(
    "RT702",
    "key-value cache that grows",
    "Use transformers.StaticCache(config=..., max_cache_len=...), made once, outside.",
    Severity.WRONG,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    A ``DynamicCache`` of transformers that lives outside and is handed to the model in each call.

    Why: Its keys are concatenated at every step, so that shapes and addresses differ from call to call; it
    can't be rebuilt as a result of a replay either (RT501).

    Limits: A cache that the call makes and drops is fine; one that it returns is told by the runtime (RT501).

    Tried: With transformers 5.23.0 a step with ``DynamicCache`` is never steady (RT201), one with
    ``StaticCache`` replays from one segment; ``use_cache=False`` where no cache is wanted.

    Bad::

        cache = DynamicCache(config=config)


        def step(ids):
            return model(ids, past_key_values=cache).logits

    Good::

        cache = StaticCache(config=config, max_cache_len=32)


        def step(ids):
            return model(ids, past_key_values=cache).logits
    """,
)
MASK_INSIDE = Rule(
    "RT703",
    "attention mask made inside the call",
    "Make the 4-D mask outside and pass it in, or pass none where nothing is padded.",
    Severity.ISLAND,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``create_causal_mask``, ``create_bidirectional_mask`` and their kin of transformers, which every model of
    it calls with a 2-D ``attention_mask``.

    Why: They ask on the host whether anything is masked (``padding_mask.all()``), to leave the mask away.
    While a stream is capturing they do not ask; rote observes before that, so the read is an island and the
    mask that is left away is part of the path.

    Limits: A 2-D mask handed to a model is not reported, since the scan knows no shapes; the runtime names
    the line in ``masking_utils.py``.

    Tried: With transformers 5.23.0 Llama with a padded 2-D mask has 3 segments, with a 4-D mask 1; BERT with
    a 2-D mask 2, without 1.

    Bad::

        mask = create_bidirectional_mask(self.config, x, attention_mask)
        return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask)

    Good::

        return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask)
    """,
)
EXPERTS = Rule(
    "RT704",
    "experts looped over in Python",
    'Use experts_implementation="grouped_mm" or "batched_mm".',
    Severity.STOPS,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    A mixture of experts of transformers with ``experts_implementation="eager"``.

    Why: It asks which experts were hit (``nonzero``) and loops over them on the host.

    Limits: Found where the name is written; the default of a model is not known to the scan.

    Tried: With transformers 5.23.0 Mixtral with 4 experts and 2 layers has 30 segments with "eager", and
    none of these islands with "batched_mm" and "grouped_mm".

    Bad::

        model = AutoModelForCausalLM.from_config(config, experts_implementation="eager")

    Good::

        model = AutoModelForCausalLM.from_config(config, experts_implementation="batched_mm")
    """,
)
GRID = Rule(
    "RT705",
    "image grid given as a tensor",
    "Run the vision tower outside of the graphed callable and pass the image features in.",
    Severity.STOPS,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``image_grid_thw`` and ``grid_thw`` of Qwen2-VL and its kin handed to a model inside the call.

    Why: The tower turns the grid into lists (``tolist``) for positions and for the lengths of its windows.

    Limits: Found by the name of the keyword.

    Tried: With transformers 5.23.0 a Qwen2-VL vision tower of one layer has 4 segments: two ``tolist`` in
    ``vision_utils.py``, a ``repeat_interleave``, and ``lengths.tolist()`` in each attention layer.

    Bad::

        features = self.visual(pixels, grid_thw=grid).last_hidden_state
        return self.head(features)

    Good::

        return self.head(features)
    """,
)
SCHEDULER_STEP = Rule(
    "RT711",
    "noise scheduler stepped inside the call",
    "Read the scheduler's sigmas into tensors before, and write the update as arithmetic on them.",
    Severity.WRONG,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``scheduler.step(noise, t, sample)`` of diffusers inside the call.

    Why: A scheduler finds its position with ``nonzero().item()`` and counts it on in Python
    (``_step_index``), so the call is never steady; captured by hand, each replay makes the step of the
    capture.

    Limits: Found by the name ``scheduler`` and at least two arguments.

    Tried: With diffusers 0.42.1 Euler and flow-matching Euler never become steady (RT201); the denoiser
    alone (``UNet2DModel``) and the update written out replay from one segment.

    Bad::

        noise = self.model(x)
        return self.scheduler.step(noise, t, x).prev_sample

    Good::

        noise = self.model(x)
        return x + (sigma_next - sigma) * noise
    """,
)
TIMESTEPS_SET = Rule(
    "RT712",
    "timesteps set inside the call",
    "Call set_timesteps once, outside.",
    Severity.STOPS,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``scheduler.set_timesteps(n)`` of diffusers inside the call.

    Why: It computes them with numpy and makes new tensors of them at every call, which are copied to the
    device.

    Limits: Any method of that name is reported.

    Tried: With diffusers 0.42.1 a loop that sets its timesteps is eager for ever: RT201 for the new tensors
    (DDIM, Euler, flow matching), RT103 for the array (Euler).

    Bad::

        self.scheduler.set_timesteps(4)
        return x * self.scheduler.timesteps[0]

    Good::

        return x * self.scheduler.timesteps[0]
    """,
)
MIXUP = Rule(
    "RT721",
    "Mixup inside the call",
    "Mix the batch before the graphed step.",
    Severity.WRONG,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``timm.data.Mixup`` called inside the call.

    Why: It draws lambda and the box with numpy, and changes the batch in place.

    Limits: Found where the mixer is made in the same file from timm's class.

    Tried: With timm 1.0.31 a call with ``Mixup`` runs eagerly (RT204). Its models (ResNet with drop path,
    ViT, EfficientNet, ConvNeXt, Swin, NaFlexViT) and ``ModelEmaV3`` replay from one segment.

    Bad::

        x, target = mixup(x, target)
        return model(x), target

    Good::

        return model(x), target
    """,
)
TIMM_OPTIMIZER = Rule(
    "RT722",
    "optimizer of timm that counts on the host",
    "Use one that counts on the device (timm.optim.AdamW, NAdamW, Adopt with capturable=True) or not at all "
    "(Lion, Lars, SGDW).",
    Severity.WRONG,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``step()`` of an optimizer of timm that has no ``capturable``: ``Lamb``, ``MADGRAD``, ``Adafactor``,
    ``AdaBelief``, ``LaProp``, ``Mars`` and others.

    Why: They count their steps in Python, or in a tensor on the host, and correct the bias with the number:
    a graph repeats the step of its capture.

    Limits: Found where the optimizer is made in the same file from timm's class; the trial run finds the
    lines in timm for any of them (RT122, RT201, RT202, RT411).

    Tried: With timm 1.0.31 the replays of a step with ``Lamb`` give other weights than eager; one with
    ``Lion`` replays from one segment, and a check of ``NAdamW(capturable=True)`` finds nothing.

    Bad::

        optimizer = Lamb(model.parameters(), lr=0.1)

    Good::

        optimizer = Lion(model.parameters(), lr=0.1)
    """,
)
BOXES_KEPT = Rule(
    "RT731",
    "detection boxes selected inside the call",
    "Graph backbone and heads with fixed shapes (topk of the scores), and call nms outside.",
    Severity.STOPS,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``torchvision.ops.nms``, ``batched_nms``, ``remove_small_boxes``, and the detection models that use them.

    Why: How many boxes are kept depends on values.

    Limits: Detection models are found by their constructors only.

    Tried: With torchvision 0.26.0 captures of ``nms``, Faster R-CNN, RetinaNet and SSD stop, each in at least
    nine lines (``transform.py``, ``rpn.py``, ``roi_heads.py``, ``ssd.py``, ``boxes.py``); ``topk`` of the
    scores replays from one segment, and so do ``roi_align`` and the backbones.

    Bad::

        keep = torchvision.ops.nms(boxes, scores, 0.5)
        return boxes[keep]

    Good::

        best = scores.topk(2).indices
        return boxes[best]
    """,
)
RANDOM_TRANSFORM = Rule(
    "RT732",
    "random image transform inside the call",
    "Augment before the graphed step.",
    Severity.WRONG,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``torchvision.transforms.RandomCrop`` and the other random transforms, of both versions, made and called
    inside the call.

    Why: They draw on the CPU and read the number (``torch.randint(...).item()``), so a graph has the crop of
    its capture for ever; under rote each crop position is a path of its own.

    Limits: A transform that is kept in an attribute is found where it is made in the same class.

    Tried: With torchvision 0.29.2 ``v2.RandomCrop`` reads twice in each call and soon has more paths than
    are kept (RT304); ``v2.Normalize`` and ResNet replay from one segment.

    Bad::

        return self.crop(x)

    Good::

        return x[..., :4, :4]
    """,
)
NORMALIZED = Rule(
    "RT733",
    "images normalised with Python lists",
    "Register mean and deviation as buffers of shape (3, 1, 1) and write (x - self.mean) / self.std.",
    Severity.STOPS,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``torchvision.transforms.Normalize`` of both versions, and ``normalize`` of their functional modules,
    inside the call.

    Why: Mean and deviation are lists, of which a tensor is made on the host and copied to the device at every
    call; rote keeps the two tensors (RT124).

    Limits: A transform that is kept in an attribute is found where it is made in the same class; one inside
    ``Compose`` is found by the trial run.

    Tried: With torchvision 0.26.0 a capture stops at ``torch.as_tensor(mean, device=device)``; with buffers
    it replays from one segment.

    Bad::

        return self.normalize(x)

    Good::

        return (x - self.mean) / self.std
    """,
)
COMPILED_INSIDE = Rule(
    "RT741",
    "torch.compile inside the call",
    "Compile once, outside, and call the compiled function.",
    Severity.SPEED,
    Group.LIBRARIES,
    Finder.SCAN,
    """
    ``torch.compile(fn)``, ``torch.jit.trace``, ``torch.jit.script`` inside the call.

    Why: Each call makes a new wrapper and checks or compiles again. With ``mode="reduce-overhead"`` it also
    makes graphs of its own, which can't be made inside of one (RT136).

    Limits: A function compiled outside is fine, and not reported.

    Bad::

        return torch.compile(self.layer, backend="eager")(x)

    Good::

        return self.compiled(x)
    """,
)
