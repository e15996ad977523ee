"""The rules: every reason why a call is not replayed, with its code and remedy."""

from . import baseline
from .findings import Findings, HazardError, finding_at, findings_of
from .ignores import Ignore, ignores_in, remarks_of_scan, told_apart, unused, without_ignored_in
