"""Training helpers that read on the host: anomaly mode, loss scaling, closures, checked norms."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

ANOMALY = Rule(
    "RT421",
    "anomaly detection inside the call",
    "Switch it on around plain calls when looking for a NaN, and off for graphs.",
    Severity.STOPS,
    Group.AUTOGRAD,
    Finder.SCAN,
    """
    ``torch.autograd.detect_anomaly()``, ``torch.autograd.set_detect_anomaly(True)`` inside the call.

    Why: After each backward operation it reads on the host whether a NaN came out.

    Limits: Switched on by the caller it is not seen by the scan.

    Bad::

        with torch.autograd.detect_anomaly():
            loss = self.layer(x).square().mean()
            loss.backward()

    Good::

        loss = self.layer(x).square().mean()
        loss.backward()
    """,
)
SCALER_INSIDE = Rule(
    "RT422",
    "gradient scaler inside the call",
    "Use bfloat16, which needs no scaler, or keep scaler.step() and scaler.update() outside.",
    Severity.STOPS,
    Group.AUTOGRAD,
    Finder.SCAN,
    """
    ``scaler.step(optimizer)`` with a ``torch.amp.GradScaler`` inside the call.

    Why: It reads on the host whether a gradient is infinite, to decide whether to step.

    Limits: Found by the name of a scaler made in the same file, or called so.

    Bad::

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    Good::

        loss.backward()
        optimizer.step()
    """,
)
CLOSURE_STEP = Rule(
    "RT423",
    "optimizer that calls a closure",
    "Use an optimizer that steps once (SGD, Adam), or graph the closure alone.",
    Severity.STOPS,
    Group.AUTOGRAD,
    Finder.SCAN,
    """
    ``optimizer.step(closure)``, as ``LBFGS`` wants it, inside the call.

    Why: How often the closure runs is decided on the host, by values of the loss.

    Limits: None known.

    Bad::

        return optimizer.step(closure)

    Good::

        return closure()
    """,
)
NORM_CHECKED = Rule(
    "RT424",
    "gradient norm checked on the host",
    "Leave error_if_nonfinite at False, and look at the returned norm outside.",
    Severity.STOPS,
    Group.AUTOGRAD,
    Finder.SCAN,
    """
    ``clip_grad_norm_(..., error_if_nonfinite=True)`` inside the call.

    Why: To raise, it has to read the norm.

    Limits: None known.

    Bad::

        clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)

    Good::

        clip_grad_norm_(model.parameters(), 1.0)
    """,
)
