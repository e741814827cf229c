"""Labels of constraints in the two editions of the StableHLO specification that number some of them differently.

Errors have the newest edition's labels. The earlier edition is that of StableHLO 0.16, before batching dimensions of
gather and scatter, and source_target_pairs of send and recv.
"""

from __future__ import annotations

EARLIER_EDITION = "StableHLO 0.16"

#: The earlier label of each newest one, of the ops, and the type, where they differ.
_EARLIER: dict[str, dict[str, str]] = {
    "!quant.uniform": {
        "C3": "C4", "C4": "C5", "C5": "C6", "C6": "C7", "C7": "C8", "C8": "C9", "C9": "C10", "C10": "C11", "C11": "C12",
    },
    "stablehlo.convolution": {"C29": "C32", "C30": "C33", "C31": "C29", "C32": "C30", "C33": "C31"},
    "stablehlo.dot_general": {"C15": "C17", "C17": "C15", "C18": "C16"},
    "stablehlo.gather": {
        "C7": "C6", "C8": "C7", "C9": "C8", "C18": "C9", "C19": "C10", "C20": "C11", "C21": "C12", "C22": "C13",
        "C23": "C14",
    },
    "stablehlo.recv": {"C5": "C1"},
    "stablehlo.scatter": {
        "C10": "C9", "C11": "C10", "C19": "C11", "C20": "C12", "C21": "C13", "C22": "C14", "C23": "C15", "C24": "C16",
        "C25": "C17",
    },
    "stablehlo.send": {"C5": "C1"},
}  # fmt: skip


def of_earlier_edition(label: str) -> str:
    """Return the label of a constraint that the earlier edition alone has one for."""
    return f"{label} of {EARLIER_EDITION}"


def earlier_labels(op: str, label: str) -> str:
    """Return the labels that the earlier edition has for those of `label`; empty where they are the same."""
    table = _EARLIER.get(op, {})
    labels = label.split(", ") if label else []
    return ", ".join(table[each] for each in labels if each in table)


def edition_note(op: str, label: str) -> str:
    """Return ` (C7 of ...)`, which follows a message; empty where both editions have the same label."""
    earlier = earlier_labels(op, label)
    return f" ({earlier} of {EARLIER_EDITION})" if earlier else ""
