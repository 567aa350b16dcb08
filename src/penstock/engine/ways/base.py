"""What a way is: it takes the records that have come to a range of operations, and brings results for the line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.engine.inputs.base import BLOCK_RECORDS_MAX
from penstock.engine.line import Item
from penstock.pipeline.ranges import Range

if TYPE_CHECKING:
    from penstock.engine.inputs import Input, Taken
    from penstock.engine.line import ItemResult
    from penstock.engine.passed import Passed
    from penstock.engine.ways.pool import Known
    from penstock.protocol.messages import Switch
    from penstock.protocol.pulses import ReplicaPulse


class Way(ABC):
    """Computes a range of operations for one unit instance.

    Whatever it takes becomes an item with a place in the unit's line. Items get their results in any order; the line
    lets them out in its own. An item that nobody else can compute is given back: the unit runs it itself.

    Attributes
    ----------
    range : Range
        The operations it computes; the unit runs those before the range when records enter, those after it when
        they leave.
    until : int or None
        Where the unit stops when records enter: the begin of the range; None: it runs the whole chain.
    is_local : bool
        What it takes has been computed, and leaves at once: it never gathers, and has nothing in the line.
    can_call : bool
        Whether functions that wait can be in its range.
    """

    range: Range
    until: int | None
    is_local: bool = False
    can_call: bool = False
    numbers: tuple[int, ...] = ()
    """The replicas that compute it, if they do."""
    is_whole: bool = False
    """Whether one of its micro-batches costs about the same for few records and for many."""

    @property
    def away(self) -> Range:
        """The operations that other processes compute."""
        return self.range

    @property
    def batched(self) -> Range:
        """The operations of which it computes the batch form."""
        return Range(0, -1)

    @property
    def is_calling(self) -> bool:
        """Whether calls are under way that another way must not take over from."""
        return False

    @property
    def has_room(self) -> bool:
        """Whether it can begin another item now."""
        return True

    @property
    def records_room(self) -> int:
        """How many records it takes at once, at the most."""
        return BLOCK_RECORDS_MAX

    @property
    def opens_blocks(self) -> bool:
        """Whether it takes rows, and not blocks as they came."""
        return self.until is None or self.until > 0

    def adapt(self, switch: Switch) -> bool:
        """Do as a switch says that leads to this way anyway; False: it leads to another one."""
        del switch
        return False

    @property
    def gathers(self) -> bool:
        """Whether it has records that are not in the line yet."""
        return False

    def is_full(self, origin: int) -> bool:
        """Whether it has as much of an input as goes into one item."""
        del origin
        return False

    @abstractmethod
    def take(self, taken: Taken, entered: Passed, now_us: int) -> None:
        """Take what the operations before the range have made of some records."""

    def take_stretches(self, source: Input, now_us: int) -> bool:
        """Take positions of a source that are to be read there; only where the range begins at the source."""
        raise NotImplementedError(f"{type(self).__name__} reads no source")

    @property
    def stretch_us(self) -> int | None:
        """How long it waits between two stretches of a source; None: the unit itself reads what comes."""
        return None

    def cut(self, now_us: int) -> bool:
        """Make items of what has gathered long enough; say whether there was any."""
        del now_us
        return False

    def flush(self, now_us: int) -> None:
        """Make items of all that has gathered: a marker comes, or another way takes over."""
        del now_us

    def wake_us(self) -> int | None:
        """When something will have gathered long enough."""
        return None

    def look(self, now_us: int) -> None:
        """Do what is due although nothing comes: in every step of the unit, also when it takes nothing more."""

    def look_us(self) -> int | None:
        """When `look` has something to do."""
        return None

    def let_out(self, item: Item, now_us: int) -> None:
        """Let out what calls from this process have made of an item, whose turn it is."""
        raise NotImplementedError(f"{type(self).__name__} makes no calls")

    def let_out_early(self, now_us: int) -> bool:
        """Let out what may leave before its turn, while its item keeps its place; say whether there was any."""
        del now_us
        return False

    def choose(self, item: Item, now_us: int) -> Known | None:
        """Who of those that the pool knows gets an item that was submitted there; None: it has to wait."""
        raise NotImplementedError(f"{type(self).__name__} sends nothing away")

    def on_result(self, item: Item, result: ItemResult, number: int = 0) -> None:
        """Whoever had the item has computed it."""
        raise NotImplementedError(f"{type(self).__name__} sends nothing away")

    def hand_on(self, records_max: int) -> int:
        """Another alternative is active in the range: give it what nobody has begun; return how many records.

        Its first item has ``records_max`` at the most, where what it costs is not known.
        """
        del records_max
        return 0

    def calls(self, alternative: str) -> bool:
        """Whether an alternative in the range calls a function."""
        del alternative
        return False

    def take_cost_ns(self, alternative: str) -> float | None:
        """What a record costs in an alternative that calls a function, as far as that is known since the last look."""
        del alternative
        return None

    def figures(self, now_us: int) -> ReplicaPulse | None:
        """What replicas have done, if they are this way."""
        del now_us
        return None

    def recall(self) -> None:
        """Another way is to take over: give back what nobody computes."""

    def forget(self) -> None:
        """The instance is built anew: whatever comes back is refused."""
