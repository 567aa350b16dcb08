"""A histogram with logarithmic buckets of constant relative width, in the manner of HdrHistogram; mergeable."""

from __future__ import annotations

from collections.abc import Mapping

_SUB_BITS = 5  # 32 buckets per power of two: a quantile is at most 3.2 % too high
_LINEAR = 2 << _SUB_BITS


class Histogram:
    """Counts of non-negative whole values; quantiles are upper bounds of their bucket."""

    __slots__ = ("counts", "maximum", "total")

    def __init__(self, counts: Mapping[int, int] | None = None, maximum: int = 0) -> None:
        self.counts: dict[int, int] = dict(counts or {})
        self.total = sum(self.counts.values())
        self.maximum = maximum

    def record(self, value: int, times: int = 1) -> None:
        """Count a value; negative ones (clocks that disagree) count as 0."""
        if value < _LINEAR:
            bucket = value if value > 0 else 0
        else:
            shift = value.bit_length() - _SUB_BITS - 1
            bucket = (shift << _SUB_BITS) + (value >> shift)
        counts = self.counts
        counts[bucket] = counts.get(bucket, 0) + times
        self.total += times
        if value > self.maximum:
            self.maximum = value

    def quantile(self, q: float) -> int:
        """Smallest recorded bucket bound that at least a share ``q`` of the values does not exceed; 0 if empty."""
        if not self.total:
            return 0
        rank = max(1, -(-int(q * self.total * 1_000_000) // 1_000_000))
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return min(bucket_bound(bucket), self.maximum) if self.maximum else bucket_bound(bucket)
        return self.maximum

    def merge(self, other: Histogram) -> None:
        """Add another histogram's counts."""
        for bucket, times in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + times
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)

    def since(self, earlier: Histogram) -> Histogram:
        """What was recorded after ``earlier``, a previous state of this histogram."""
        counts = {b: n - earlier.counts.get(b, 0) for b, n in self.counts.items() if n > earlier.counts.get(b, 0)}
        # The exact maximum is known only if it was set since; else the newest bucket's bound stands in for it.
        return Histogram(counts, min(self.maximum, bucket_bound(max(counts))) if counts else 0)

    def copy(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(self.counts, self.maximum)


def bucket_bound(bucket: int) -> int:
    """Largest value that falls into a bucket."""
    if bucket < _LINEAR:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return (((bucket & ((1 << _SUB_BITS) - 1)) + (1 << _SUB_BITS) + 1) << shift) - 1
