"""Which slots of the Python state differ between two walks of it."""

from __future__ import annotations

from ..runtime.state import DEFINED, LENGTH, MISSING, Difference, Snapshot, difference_in, read, same, show


def differences(before: Snapshot, after: Snapshot, limit: int = 8) -> list[Difference]:
    """List the slots whose content differs between two walks."""
    found: list[Difference] = []
    for address, entry in before.entries.items():
        later = after.entries.get(address)
        if later is not None and (entry.value is later.value or same(entry.value, later.value)):
            continue
        if later is not None:
            found.append(difference_in(after, entry, later, before.name_of(entry)))
        else:
            now = read(entry)
            if now is MISSING or (entry.kind == DEFINED and not same(entry.value, now)):
                found.append(Difference(before.name_of(entry), show(entry.value), show(now)))
        if len(found) >= limit:
            return found
    for address in [each for each in after.entries if each not in before.entries]:
        entry = after.entries[address]
        if (LENGTH, address[1], None) in before.entries:
            found.append(Difference(after.name_of(entry), "absent", show(entry.value)))
        if len(found) >= limit:
            break
    return sorted(found, key=lambda difference: "(" in difference.name)
