"""The device of a check, as the callable finds it: ``torch.cuda``, streams, events, random draws."""

from .fake import FakeStage
