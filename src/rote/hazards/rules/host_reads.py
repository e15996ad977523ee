"""Host reads: the program wants a tensor's value in Python, so it waits for the device."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

HOST_READ = Rule(
    "RT101",
    "host read",
    "Keep the value on the device (torch.where, masked arithmetic), or accept one graph segment per value.",
    Severity.STOPS,
    Group.HOST_READS,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    A tensor's value is read into Python: ``.item()``, ``float(x)``, ``int(x)``, a tensor as the condition of
    ``if``, ``while`` or ``assert``, ``torch.equal``, ``torch.allclose``, a tensor as the end of a ``range``.

    Why: The host has to wait until the device has computed the value, and a capture runs nothing; the wait
    fails with "operation not permitted when stream is capturing". rote ends the segment there and makes the
    value part of the path: each distinct value gets segments of its own.

    Limits: The scan has to know that the expression is a tensor; a value that comes out of a function of
    another file is not known to be one. Reading a tensor that lives on the CPU costs no wait, yet freezes
    the value; it is found as well.

    Bad::

        if x.sum().item() > 10:
            return x * 2
        return x - 1

    Good::

        return torch.where(x.sum() > 10, x * 2, x - 1)
    """,
)
LIST_READ = Rule(
    "RT102",
    "tensor turned into a list",
    "Keep the values in a tensor.",
    Severity.STOPS,
    Group.HOST_READS,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``.tolist()``, ``list(x)`` of single elements: all values of a tensor are read into Python.

    Why: It waits for the device, as ``.item()`` does, and what Python does with the list is not replayed.
    rote makes the list part of the path.

    Limits: A list that is taken from a tensor of the CPU outside of the call and passed in is fine; lengths
    are then part of the key.

    Bad::

        parts = x.split(lengths.tolist())
        return torch.stack([part.sum() for part in parts])

    Good::

        sums = torch.zeros(len(x) + 1, device=x.device)
        sums[1:] = x.cumsum(0)
        ends = lengths.cumsum(0)
        return sums[ends] - sums[ends - lengths]
    """,
)
MEMORY_ESCAPE = Rule(
    "RT103",
    "tensor memory handed to numpy or DLPack",
    "Compute with PyTorch operations inside the callable; convert outside of it.",
    Severity.STOPS,
    Group.HOST_READS,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``.numpy()``, ``numpy.asarray(x)``, ``torch.utils.dlpack.to_dlpack(x)``: another library works on the
    tensor's memory.

    Why: Of a tensor on the GPU it needs a copy to the host first, which stops a capture. What the other
    library computes is not recorded, so a replay would use the numbers of the recording.

    Limits: The runtime sees arrays and capsules made of tensors, not what foreign code does with a
    ``data_ptr()``.

    Bad::

        order = numpy.argsort(x.cpu().numpy())
        return x[torch.from_numpy(order)]

    Good::

        order = torch.argsort(x)
        return x[order]
    """,
)
PRINTED = Rule(
    "RT104",
    "tensor printed or logged",
    "Return the tensor and print it outside, or drop the line.",
    Severity.STOPS,
    Group.HOST_READS,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``print(x)``, ``logger.info("loss %s", loss)``, ``f"{loss:.3f}"``, ``writer.add_scalar(tag, loss)``: a
    tensor's value becomes text.

    Why: Formatting reads the values, which waits for the device and stops a capture. In a replay nothing is
    printed, because no Python runs.

    Limits: Shapes, types and devices of tensors may be printed; they are not values. A ``logger.debug`` that
    is switched off does not format, and is found all the same. The runtime reports text that the call makes,
    which may steer what it does; a tensor on the CPU that is handed to ``print`` or a logger itself is none.

    Bad::

        errors = (x - y).square()
        print(f"errors {errors}")
        return errors.mean()

    Good::

        errors = (x - y).square()
        return errors.mean()
    """,
)
SAVED = Rule(
    "RT105",
    "tensor written to a file",
    "Return the tensor and save it outside.",
    Severity.STOPS,
    Group.HOST_READS,
    Finder.SCAN,
    """
    ``torch.save``, ``numpy.save``, ``pickle.dump``, ``torchvision.utils.save_image`` inside the call.

    Why: The bytes have to come to the host first, which stops a capture; a replay writes no file.

    Limits: Files written by functions of other modules are not seen.

    Bad::

        y = x * 2
        torch.save(y, path)
        return y

    Good::

        y = x * 2
        return y
    """,
)
