"""Where processes listen: ranges of ports, another address than the one that others connect to, what is refused."""

from __future__ import annotations

import pytest
import zmq

from penstock.errors import InvalidOption, PortOccupied
from penstock.pipeline.options import Options
from penstock.runtime.addresses import Address, spark_settings
from penstock.testing.servers import free_port

MASTER = "spark://host:7077"


def test_a_process_listens_in_its_range_and_is_known_by_another_name() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as one, context.socket(zmq.PULL) as other:
        free = free_port()
        address = Address("driver.example", "127.0.0.1", (free, free))
        assert address.take(one) == f"tcp://driver.example:{free}"
        with pytest.raises(PortOccupied, match=f"127.0.0.1:{free}-{free}"):
            address.take(other)


def test_an_address_of_another_machine_cannot_be_listened_at() -> None:
    told = pytest.raises(InvalidOption, match=r"bind_address.*192\.0\.2\.1.*of this machine")
    with zmq.Context() as context, context.socket(zmq.PULL) as inbox, told:
        Address("192.0.2.1").take(inbox)


def test_sparks_own_driver_is_told_the_same() -> None:
    options = Options.of(
        master=MASTER, driver_address="10.0.0.7", bind_address="0.0.0.0", ports="40000-40100", parallelism=1
    )
    assert spark_settings(options) == {
        "spark.driver.host": "10.0.0.7",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": "40000",
        "spark.driver.blockManager.port": "40000",
        "spark.blockManager.port": "40000",
        "spark.port.maxRetries": "100",
    }
    assert spark_settings(Options.of(parallelism=1)) == {}


@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("driver_address", "host:7077", "no port"),
        ("bind_address", "", "no port"),
        ("ports", "40000", "FIRST-LAST"),
        ("ports", "41000-40000", "FIRST-LAST"),
        ("ports", "80-90", "from 1024"),
    ],
)
def test_what_is_no_address_and_no_range_is_refused(option: str, given: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        Options.of(master=MASTER, **{option: given})  # type: ignore[arg-type]


def test_on_one_machine_there_is_nothing_to_say() -> None:
    with pytest.raises(InvalidOption, match="on a cluster only"):
        Options.of(driver_address="10.0.0.7")
