"""What was learned, kept in a folder for later processes: facts, kernels and certificates.

Everything here is read as an enemy may have written it. *Facts* are JSON that is taken apart by type and
bounded in size; nothing follows from them but when something is tried (:mod:`..runtime.engine.facts`). *Code
and certificates* are taken from a folder of the user's own that nobody else may write, and from nowhere else.
Nothing is unpickled. What cannot be read or written is said in the report, and is done without.
"""

from .contents import PlanEntry, check, entries, prune
from .directory import PLANS
from .store import PlanFile, PlanReport, PlanStore
