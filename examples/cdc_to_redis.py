"""Change capture: a shop's orders live in PostgreSQL; Redis follows them, and counts the orders of each customer.

Starts its own servers, unless POSTGRES_DSN and REDIS_URL name some; on Debian: apt-get install postgresql redis-server.
"""

import os
import sys
import time
from pathlib import Path

import psycopg
import redis

import penstock as ps

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from services import started

DSN = os.environ.get("POSTGRES_DSN") or started("postgres")
URL = os.environ.get("REDIS_URL") or started("redis")

with psycopg.connect(DSN, autocommit=True) as shop:
    shop.execute("CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, customer text, item text, pieces int)")
    shop.execute("INSERT INTO orders (customer, item, pieces) VALUES ('ada', 'tea', 2), ('bob', 'ink', 1)")


def trade(rounds):
    """Order, change one's mind, and cancel, while the job runs."""
    with psycopg.connect(DSN, autocommit=True) as shop:
        for _ in range(rounds):
            shop.execute(
                "INSERT INTO orders (customer, item, pieces) VALUES "
                "((ARRAY['ada', 'bob', 'cy'])[1 + (random() * 2)::int], 'tea', 1 + (random() * 4)::int)"
            )
            shop.execute("UPDATE orders SET pieces = pieces + 1 WHERE id % 5 = 0 AND pieces < 9")
            shop.execute("DELETE FROM orders WHERE pieces = 9 OR random() < 0.01")
            time.sleep(0.02)


changes = ps.stream("changes", ps.postgres(DSN, "orders"))

rows = changes.with_columns(gone=ps.col("_op") == "delete").select("id", "customer", "item", "pieces", "gone")
follow = rows.to(ps.redis(URL, key="id", prefix="order", delete="gone"), name="follow")

ordered = changes.filter(ps.col("_op").isin("snapshot", "insert")).key_by("customer").count()
pipeline = follow + ordered.to(ps.redis(URL, key="customer", prefix="ordered"), name="ordered")

if __name__ == "__main__":
    with ps.start(pipeline, epoch="200ms") as job:
        trade(500)
        time.sleep(5)  # long after the last change has arrived
        job.drain()
        print(f"{job.wait().events_in} changes")
    with psycopg.connect(DSN) as shop, redis.Redis.from_url(URL, decode_responses=True) as store:
        names = list(store.scan_iter("order:*"))
        here = len(names), sum(int(store.hget(each, "pieces")) for each in names)
        print("in PostgreSQL:", shop.execute("SELECT count(*), sum(pieces) FROM orders").fetchone(), "in Redis:", here)
        print({each: store.hget(each, "count") for each in sorted(store.scan_iter("ordered:*"))})
