"""Fraud: a payment far above what a card has spent so far raises an alert; cards that are silent are told too."""

import penstock as ps


class Fraud(ps.Process):
    spent = ps.state.value(float, default=0.0)
    payments = ps.state.value(int, default=0)
    due = ps.state.value(int)

    def on_record(self, payment, ctx):
        if self.payments >= 3 and payment.amount > 3 * self.spent / self.payments:
            ctx.output("alerts", {"card": payment.card, "amount": payment.amount, "mean": self.spent / self.payments})
        self.spent += payment.amount
        self.payments += 1
        if self.due is not None:
            ctx.cancel_timer(self.due)
        self.due = payment.at + 5_000_000
        ctx.set_timer(self.due)

    def on_timer(self, at_us, ctx):  # five seconds of event time without a payment
        yield {"card": ctx.key, "payments": self.payments, "spent": self.spent}
        ctx.forget()


payments = ps.generator(
    {"card": ps.fields.choice([f"card-{i}" for i in range(20)], zipf=1.5), "amount": ps.fields.uniform(1, 100)}
    | {"at": ps.fields.event_time()},
    rate=5,
    format="columns",
)
watched = (
    ps.stream("payments", payments)
    .with_watermark("at", "1s")
    .key_by("card")
    .process(
        Fraud,
        schema="card string, payments bigint, spent double",
        outputs={"alerts": "card string, amount double, mean double"},
        order="time",  # whatever order payments come in, the result is the same
    )
)
pipeline = watched.to(ps.console(), name="silent") + watched.output("alerts").to(ps.console(), name="alerts")

if __name__ == "__main__":
    ps.run(pipeline, name="fraud")
