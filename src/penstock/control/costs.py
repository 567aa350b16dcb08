"""What a record costs in either form of an operation, over all of its instances; `measures` keeps it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.operators import Form

WEIGHT = 0.3


@dataclass(slots=True)
class Cost:
    """One operation in one form, in nanoseconds a record.

    Attributes
    ----------
    mean_ns : float
        Over all instances.
    slowest_ns : float
        Of the instance that takes longest: its records cost more, or its machine is slower.
    rough : bool
        Only small blocks have told it, which say what a block costs too.
    """

    mean_ns: float
    slowest_ns: float
    rough: bool = False


@dataclass(slots=True)
class Costs:
    """The costs of every operation, as far as they are known."""

    _known: dict[tuple[str, Form], Cost] = field(default_factory=dict)
    _sampled: dict[tuple[str, Form], dict[int, float]] = field(default_factory=dict)
    """By instance: the least of its samples, for whatever disturbs one only adds to it."""
    _put_away: dict[tuple[str, str, Form], Cost] = field(default_factory=dict)
    """Of alternatives that do not compute now."""

    def sampled(self, name: str, form: Form, instance: int, cost_ns: float) -> None:
        """Take what a sample of one instance has cost."""
        held = self._sampled.setdefault((name, form), {})
        held[instance] = min(cost_ns, held.get(instance, cost_ns))
        self._known[name, form] = Cost(sum(held.values()) / len(held), max(held.values()))

    def heard(self, name: str, form: Form, mean_ns: float, slowest_ns: float, *, enough: bool) -> None:
        """Take what the records of the last heartbeats have cost; ``enough``: a block's own cost did not count.

        Small blocks are better than nothing for the record form, which has to be known before there is a burst.
        """
        slowest_ns = max(mean_ns, slowest_ns)
        known = self._known.get((name, form))
        if known is None:
            if enough or form is Form.RECORD:
                self._known[name, form] = Cost(mean_ns, slowest_ns, not enough)
        elif known.rough:
            if enough or mean_ns < known.mean_ns:
                self._known[name, form] = Cost(mean_ns, slowest_ns, not enough)
        elif enough:
            known.mean_ns += WEIGHT * (mean_ns - known.mean_ns)
            known.slowest_ns += WEIGHT * (slowest_ns - known.slowest_ns)

    def exchange(self, name: str, before: str, after: str) -> None:
        """Another alternative computes: put the costs of the one before away, and take those of the other one out."""
        for form in Form:
            key = name, form
            if key in self._known:
                self._put_away[name, before, form] = self._known.pop(key)
            self._sampled.pop(key, None)
            kept = self._put_away.get((name, after, form))
            if kept is not None:
                self._known[key] = kept

    def of(self, name: str, form: Form) -> Cost | None:
        """The cost of an operation in one form, if it is known."""
        return self._known.get((name, form))

    def means_ns(self, form: Form) -> dict[str, float]:
        """Mean costs by operation."""
        return {name: cost.mean_ns for (name, each), cost in self._known.items() if each is form}
