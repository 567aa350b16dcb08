"""Grep: print the log lines that report an error, as they come."""

import penstock as ps

logs = ps.generator(
    {
        "number": ps.fields.sequence(),
        "level": ps.fields.choice(["INFO", "WARN", "ERROR"], weights=[989, 10, 1]),
        "service": ps.fields.choice(["api", "auth", "billing", "search"]),
        "message": ps.fields.words(["request", "retry", "timeout", "refused", "served", "cached"], 4),
    },
    rate=2_000,
    format="columns",
)

errors = (
    ps.stream("logs", logs)
    .filter((ps.col("level") == "ERROR") & ps.col("message").rlike("timeout|refused"))
    .to(ps.console())
)

if __name__ == "__main__":
    ps.run(errors, name="grep")
