"""Attribution: clicks joined with the views of the same ad by the same user before them, counted in sliding windows."""

import penstock as ps

USERS = [f"user-{user:02}" for user in range(50)]
ADS = [f"ad-{ad:02}" for ad in range(20)]

views = ps.generator(
    {
        "user": ps.fields.choice(USERS),
        "ad": ps.fields.choice(ADS),
        "viewed": ps.fields.event_time(jitter="500ms"),
    },
    rate=500,
    format="columns",
)
clicks = ps.generator(
    {
        "user": ps.fields.choice(USERS),
        "ad": ps.fields.choice(ADS),
        "clicked": ps.fields.event_time(jitter="500ms"),
    },
    rate=50,
    format="columns",
    seed=1,
)

attributed = (
    ps.stream("clicks", clicks)
    .with_watermark("clicked", "1s")
    .join(
        ps.stream("views", views).with_watermark("viewed", "1s"),
        on=["user", "ad"],
        within="5s",
        left_time="clicked",
        right_time="viewed",
    )
    .filter(ps.col("viewed") <= ps.col("clicked"))
    .key_by("ad")
    .window("10s", on="clicked", slide="2s")
    .count()
    .to(ps.console())
)

if __name__ == "__main__":
    ps.run(attributed, name="attribution")
