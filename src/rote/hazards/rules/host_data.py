"""Host data: what the call makes or changes on the host and the device then needs."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

DEVICE_COPY = Rule(
    "RT121",
    "copy between devices",
    "Make the tensor on the device (device=...), or pass it in as an argument that is there already.",
    Severity.STOPS,
    Group.HOST_DATA,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``x.cpu()``, ``x.to("cpu")``, ``torch.arange(n).to(x.device)``, ``torch.zeros(n).cuda()``: bytes go from
    one device to the other inside the call. So they do in ``x[i, j] = 5.0``: where a number is stored in a
    single element it is a tensor on the host first. In a row or a slice it is filled in.

    Why: A copy from or to memory that is not pinned waits for the device and stops a capture. rote makes it
    an island between two segments.

    Limits: ``x.to(device)`` of a tensor that is there already copies nothing; the scan reports a move only
    where the source is known to be on the host, or the target is.

    Bad::

        steps = torch.arange(4.0).to(x.device)
        return x * steps

    Good::

        steps = torch.arange(4.0, device=x.device)
        return x * steps
    """,
)
HOST_OPERATION = Rule(
    "RT122",
    "operation on host tensors",
    "Move the computation to the device.",
    Severity.WRONG,
    Group.HOST_DATA,
    Finder.TRIAL | Finder.RUNTIME,
    """
    An operation whose operands all lie in host memory, in a call that runs on a GPU.

    Why: A graph holds no work of the CPU. Captured by hand, the operation runs once, and replays use what it
    gave then. rote runs it at every replay, before the segment that needs it.

    Limits: Only where the call runs on CUDA; with the host backend these operations are the ones recorded.

    Bad::

        scale = torch.linspace(0, 1, 4).mean()
        return x * scale.to(x.device)

    Good::

        scale = torch.linspace(0, 1, 4, device=x.device).mean()
        return x * scale
    """,
)
HOST_DATA = Rule(
    "RT123",
    "data built on the host inside the call",
    "Build the array outside and pass it in as a tensor.",
    Severity.STOPS,
    Group.HOST_DATA,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``torch.from_numpy(array)``, ``torch.as_tensor(array)``, ``torch.frombuffer(...)`` of data made inside.
    Also host memory that no operation wrote before it is read, since C++ code filled it: ``F.ctc_loss``
    with lengths as Python numbers.

    Why: Its bytes are copied to the device, which stops a capture unless they are pinned; a graph that holds
    the copy reads the old bytes, or freed memory.

    Limits: An array that lives outside (an attribute, a global) is found by the runtime, which reads it anew
    at each replay. One that the call makes, and leaves alone once it has become a tensor, is a constant of
    the recording. Neither is reported by the runtime.

    Bad::

        window = numpy.hanning(4).astype(numpy.float32)
        scale = torch.from_numpy(window).to(x.device)
        window[0] = 1.0
        return x * scale

    Good::

        scale = torch.hann_window(4, periodic=False, device=x.device)
        return x * scale
    """,
)
CONSTANT = Rule(
    "RT124",
    "tensor made from Python values",
    "Use torch.full, torch.zeros or torch.arange with device=..., or make the tensor once, outside.",
    Severity.STOPS,
    Group.HOST_DATA,
    Finder.SCAN | Finder.TRIAL,
    """
    ``torch.tensor(0.5, device=x.device)``, ``torch.tensor([...]).to(x.device)``, ``x.new_tensor([...])``: the
    numbers are put into host memory and copied to the device.

    Why: The copy waits for the device and stops a capture ("Cannot copy between CPU and CUDA tensors during
    CUDA graph capture unless the CPU tensor is pinned"). rote hoists constants of which it can see that they
    are the same in every call; they cost it nothing.

    Limits: A factory with a number (``torch.full``) writes it with a kernel and is fine. ``torch.tensor`` on
    the CPU that never leaves it is not reported.

    Bad::

        weights = torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
        return x * weights

    Good::

        weights = torch.arange(1.0, 5.0, device=x.device)
        return x * weights
    """,
)
PAGEABLE_COPY = Rule(
    "RT125",
    "non-blocking copy inside the call",
    "Copy outside into a tensor on the device that stays the same, and pass that in.",
    Severity.STOPS,
    Group.HOST_DATA,
    Finder.SCAN | Finder.TRIAL,
    """
    ``x.to(device, non_blocking=True)``, ``buffer.copy_(batch, non_blocking=True)`` inside the call.

    Why: From pageable memory the copy is refused during a capture. From pinned memory it is captured with the
    address of the host buffer: a replay reads whatever lies there then, and a buffer that was freed or is
    being refilled gives wrong numbers without an error.

    Limits: The scan does not know whether the memory is pinned; a copy between two tensors of one device is
    reported as well, where ``non_blocking`` does nothing.

    Bad::

        x = batch.to(weight.device, non_blocking=True)
        return x * weight

    Good::

        return batch * weight
    """,
)
LIST_INDEX = Rule(
    "RT126",
    "tensor indexed with a Python list",
    "Use slices, or an index tensor that is made once on the device (a buffer).",
    Severity.STOPS,
    Group.HOST_DATA,
    Finder.SCAN | Finder.TRIAL,
    """
    ``x[[0, 2, 1]]``, ``x[:, order]`` with a list: Python numbers become an index tensor.

    Why: The list is turned into a tensor on the host and copied to the device at every call, which stops a
    capture as any such copy does.

    Limits: Only lists that are written in the function, or names bound to one there, are seen.

    Bad::

        return x[:, [0, 2, 1]]

    Good::

        return torch.stack([x[:, 0], x[:, 2], x[:, 1]], 1)
    """,
)
CLOCK = Rule(
    "RT127",
    "clock read inside the call",
    "Take the time outside and pass it in; measure a graph with events around its calls.",
    Severity.WRONG,
    Group.HOST_DATA,
    Finder.SCAN,
    """
    ``time.time()``, ``time.perf_counter()``, ``datetime.now()``, ``uuid.uuid4()`` inside the call.

    Why: The value is taken when the graph is captured and is the same in every replay. What is measured is
    how long Python took to launch, and replays measure nothing. The runtime reports RT202 when the value
    reaches an operation.

    Limits: A clock that is read through a helper of another module is not seen.

    Bad::

        return x * 0 + time.perf_counter()

    Good::

        return x * 0 + now
    """,
)
