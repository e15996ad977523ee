"""The rules: kinds of hazards and reasons, each with a stable code and a text; findings and remarks.

Every rule of ``table.toml`` has a name here, such as ``rules.HOST_READ``.
"""

from typing import TYPE_CHECKING

from .finding import Finding, Remark, Severity
from .rule import Finder, Reason, Rule, Topic, reason
from .table import NAMED, RULES

globals().update(NAMED)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Rule: ...
