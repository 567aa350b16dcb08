"""A page that shows results as they are committed: clicks per page in windows of 5 seconds.

Run it with ``python examples/live_page.py`` and open http://127.0.0.1:8090/?token=example-token; end it with Ctrl-C.
"""

import penstock as ps

PAGES = ["/", "/shop", "/help", "/about"]

clicks = ps.stream(
    "clicks",
    ps.generator({"page": ps.fields.choice(PAGES), "at": ps.fields.event_time()}, rate=20, format="columns"),
)
shown = clicks.key_by("page").window("5s", on="at").count().to(ps.sse(port=8090, token="example-token"))

if __name__ == "__main__":
    ps.run(shown, name="live-page", epoch="200ms")
