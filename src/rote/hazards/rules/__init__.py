"""The rules: hazards and reasons, each with a stable code and a text, and what is found by them.

Every rule of :mod:`~rote.hazards.rules.table` is offered by its name, as ``rules.HOST_READ``.
"""

from __future__ import annotations

from .finding import Finding, Remark, Severity
from .rule import Finder, Reason, Rule, Topic, reason
from .table import *  # noqa: F403  # a hundred names, which stand in the table
from .table import RULES
