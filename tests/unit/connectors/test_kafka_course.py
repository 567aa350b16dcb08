"""What a publisher does next: whatever fails, each committed epoch is there once, in order, and nothing else is."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.encoding import Entry
from penstock.connectors.kafka.publisher import AHEAD_S_MAX, Course, Do, Prepared

Content = tuple[int, int]
"""An epoch, and which attempt at it: another attempt has other records."""


def entries(content: Content) -> list[Entry]:
    return [(None, b"%d/%d" % content, None, -1)]


def content(prepared: Prepared) -> Content:
    epoch, _, attempt = (prepared.entries[0][1] or b"").partition(b"/")
    return int(epoch), int(attempt)


class Refused(Exception):
    """The broker, or the way to it."""


@dataclass
class Broker:
    """A topic and its tokens: one transaction at a time, of the client that has initialised last."""

    visible: list[Content] = field(default_factory=list)
    token: int | None = None
    client: int = 0
    open: list[Content] | None = None

    def initialise(self) -> int:
        self.client += 1
        self.open = None
        return self.client

    def end(self, client: int, *, commit: bool) -> None:
        if client != self.client or self.open is None:
            raise Refused
        if commit:
            self.visible += self.open
            self.token = self.open[-1][0]
        self.open = None

    def send(self, client: int, epochs: list[Content]) -> None:
        if client != self.client:
            raise Refused
        assert self.open is None
        self.open = epochs


class Writer:
    """A publisher's thread, as far as the broker sees it."""

    def __init__(self, broker: Broker, committed: int, held: list[Content]) -> None:
        self.broker, self.course, self.client = broker, Course(committed), 0
        self.is_overtaken = False
        """It has found a token of an epoch that it does not know to be committed: it fails there."""
        for each in held:
            self.course.prepare(each[0], entries(each))

    def turn(self, now_s: float, *, fails: bool = False, answer_lost: bool = False) -> bool:
        """Do what is next, unless that fails, before it has an effect or behind it; say whether there was anything."""
        course, broker = self.course, self.broker
        what = course.next(now_s)
        if what is None:
            return False
        try:
            if fails:
                raise Refused
            match what:
                case Do.OPEN:
                    self.client = broker.initialise()
                    self.is_overtaken = broker.token is not None and broker.token > course.committed
                    course.opened(broker.token)
                case Do.SEND:
                    ready = course.ready
                    broker.send(self.client, [content(each) for each in ready])
                    broker.end(self.client, commit=True)
                    if answer_lost:
                        raise Refused
                    course.published(ready[-1].epoch)
                case Do.SEND_AHEAD:
                    first = course.waiting[0]
                    assert first.epoch > course.committed
                    broker.send(self.client, [content(first)])
                    course.sent_ahead(first.epoch, now_s)
                case Do.COMMIT:
                    assert course.ahead is not None
                    assert course.ahead <= course.committed
                    broker.end(self.client, commit=True)
                    if answer_lost:
                        raise Refused
                    course.published(course.ahead)
                case Do.ABORT:
                    broker.end(self.client, commit=False)
                    course.aborted()
        except Refused:
            course.failed()
        return True


EVENTS = st.sampled_from(
    ["prepare", "prepare", "commit", "commit", "turn", "turn", "turn", "fail", "lose", "zombie", "crash", "wait"]
)


@given(st.lists(EVENTS, max_size=60))
def test_every_committed_epoch_is_there_once_and_nothing_else(events: list[str]) -> None:
    broker = Broker()
    writer, zombies, attempt, now_s = Writer(broker, 0, []), list[Writer](), 0, 0.0
    committed: list[Content] = []
    pending: tuple[Content, list[Content]] | None = None  # prepared and not committed, and what its snapshot has
    stored: list[Content] = []
    for event in events:
        match event:
            case "prepare" if pending is None:
                new = len(committed) + 1, attempt
                writer.course.prepare(new[0], entries(new))
                pending = new, [content(each) for each in writer.course.waiting]
            case "commit" if pending is not None:
                committed.append(pending[0])
                stored, pending = pending[1], None
                writer.course.commit(len(committed))
            case "turn":
                writer.turn(now_s)
            case "fail":
                writer.turn(now_s, fails=True)
            case "lose":
                writer.turn(now_s, answer_lost=True)
            case "zombie":
                for each in zombies:
                    each.turn(now_s)
                zombies = [each for each in zombies if not each.is_overtaken]
            case "crash":
                # What is not committed is computed again, by another process; the one before may live on.
                zombies.append(writer)
                attempt, pending = attempt + 1, None
                writer = Writer(broker, len(committed), stored)
            case "wait":
                now_s += AHEAD_S_MAX
            case _:
                pass
        assert not writer.is_overtaken
        assert broker.visible == committed[: len(broker.visible)]
        assert writer.course.queued_bytes == sum(each.size_bytes for each in writer.course.ready)
    for _ in range(5):
        writer.turn(now_s)
    assert broker.visible == committed


def test_a_writer_that_was_replaced_does_not_fence_its_successor() -> None:
    """It finds out when it sends the next epoch ahead; as long as that is not committed it leaves the name alone."""
    broker = Broker()
    before = Writer(broker, 0, [])
    assert before.turn(0.0)
    after = Writer(broker, 0, [])
    assert after.turn(0.0)
    before.course.prepare(1, entries((1, 0)))
    assert before.turn(0.0)
    assert not before.turn(0.0)
    assert broker.client == after.client
