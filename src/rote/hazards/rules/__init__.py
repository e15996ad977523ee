"""The rules: kinds of hazards and reasons, each with a stable code and a text; findings and remarks.

Every rule of :mod:`~rote.hazards.rules.table` has a name here, such as ``rules.HOST_READ``.
"""

from .finding import Finding, Remark, Severity
from .rule import Finder, Reason, Rule, Topic, reason
from .table import *  # noqa: F403  # a hundred rules
from .table import RULES
