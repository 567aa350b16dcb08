"""Rates: every order is converted with a rate that a service tells; many questions are under way at once."""

import asyncio

import penstock as ps

RATES = {"EUR": 1.0, "USD": 0.92, "JPY": 0.0061}


async def ask(currency):
    """What a client for HTTP would do here."""
    await asyncio.sleep(0.05)
    return RATES[currency]


@ps.op(schema="id bigint, currency string, euros double")
async def convert(order):
    return order.id, order.currency, order.amount * await ask(order.currency)


orders = ps.generator(
    {"id": ps.fields.sequence(), "currency": ps.fields.choice(list(RATES)), "amount": ps.fields.uniform(1, 500)},
    rate=20,
    format="columns",
)
pipeline = (
    ps.stream("orders", orders)
    .map_async(convert, capacity=16, timeout="2s", retry=ps.retry(3, wait="100ms", on=(OSError, TimeoutError)))
    .to(ps.console())
)

if __name__ == "__main__":
    ps.run(pipeline, name="rates")
