"""The Yahoo streaming benchmark: views of ads, counted for each campaign in windows of 10 seconds."""

import penstock as ps

CAMPAIGN_OF_AD = {f"ad-{ad:03}": f"campaign-{ad // 10:02}" for ad in range(1000)}

events = ps.generator(
    {
        "user_id": ps.fields.hexid(12),
        "page_id": ps.fields.hexid(12),
        "ad_id": ps.fields.choice(list(CAMPAIGN_OF_AD)),
        "ad_type": ps.fields.choice(["banner", "modal", "sponsored-search", "mail", "mobile"]),
        "event_type": ps.fields.choice(["view", "click", "purchase"]),
        "event_time": ps.fields.event_time(unit="ms", jitter="500ms"),
        "ip_address": "1.2.3.4",
    },
    rate=4_000,
)

ads = ps.table(CAMPAIGN_OF_AD.items(), schema="ad_id string, campaign_id string", key="ad_id")

views = (
    ps.stream("ad-events", events)
    .parse_json("ad_id string, event_type string, event_time timestamp")
    .filter(ps.col("event_type") == "view")
    .select("ad_id", "event_time")
    .lookup(ads, on="ad_id")
    .key_by("campaign_id")
    .window(ps.tumbling("10s", on="event_time", lateness="1s"))
    .count()
    .to(ps.files("out/yahoo_ads", existing="replace"))
)

if __name__ == "__main__":
    ps.run(views, name="yahoo-ads")
