"""openpi's PyTorch model and its Policy, to be tested with where openpi itself is not installed.

Copied from https://github.com/Physical-Intelligence/openpi at commit 15a9616a00943ada6c20a0f158e3adb39df2ccac
(2026-06-16), Apache License 2.0, Copyright Physical Intelligence. Some changes follow the copy in lerobot's tests
(https://github.com/huggingface/lerobot at 7427f31801f944f5ec9ce53cda02862ce7d1638b, Apache License 2.0, Copyright The
HuggingFace Inc. team). With the same weights it gave the bits of openpi's own code over transformers 4.53.2 (float32
and bfloat16, pi0 and pi0.5, actions and losses; on the host, torch 2.13, 2026-11-25). What was changed:

- ``pi0_pytorch.py``, ``preprocessing_pytorch.py``, ``image_tools.py``: imports; no check that transformers is replaced;
  sizes of the vision tower and the vocabulary come from the configuration.
- ``gemma_pytorch.py``: the configurations of transformers 5.
- ``modeling_pi_gemma.py``: openpi's ``transformers_replace`` as modules of their own; it says what was left out.
- ``gemma.py``, ``config.py``, ``observation.py``, ``policy.py``: without JAX, cut to what PyTorch models use.
"""
