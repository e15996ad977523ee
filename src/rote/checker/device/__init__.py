"""The device of a check, as the callable finds it: ``torch.cuda``, streams, events, random draws."""

from __future__ import annotations

from .fake import FakeStage
