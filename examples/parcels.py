"""Orders of RabbitMQ, payments that a webhook receives and parcels of Kinesis, joined; out to Kafka and ActiveMQ.

Kafka's topic `done` gets each order that was paid and sent, exactly once. ActiveMQ's queue `reminders` gets each order
that nobody has paid within a day, at least once, with the same `headrace-id` each time. See docs/brokers.md.
"""

import os

import headrace as hr
from headrace.connect import kafka, kinesis, rabbitmq, stomp, webhook

RABBITMQ = os.environ.get("PARCELS_RABBITMQ", "amqp://ada:env:RABBIT_PASSWORD@localhost/")
PAYMENTS = os.environ.get("PARCELS_PAYMENTS", "http://127.0.0.1:8080/payments")
KINESIS = os.environ.get("PARCELS_KINESIS")  # Amazon's own address by default
KAFKA = os.environ.get("PARCELS_KAFKA", "kafka://localhost:9092")
ACTIVEMQ = os.environ.get("PARCELS_ACTIVEMQ", "stomp://ada:env:STOMP_PASSWORD@localhost:61613")

app = hr.App("parcels", storage=os.environ.get("PARCELS_STORAGE", ".headrace/parcels"))

orders = app.stream(
    "orders",
    "order_id bigint, customer string, amount double, at timestamp",
    key="order_id",
    event_time="at",
    out_of_order="1 hour",
    source=rabbitmq.queue(RABBITMQ, "orders"),
)
payments = app.stream(
    "payments",
    "order_id bigint, paid double, paid_at timestamp",
    key="order_id",
    event_time="paid_at",
    out_of_order="1 hour",
    source=webhook.endpoint(PAYMENTS, secret="env:PAYMENTS_SECRET"),  # noqa: S106 -- the name of a variable
)
parcels = app.stream(
    "parcels",
    "order_id bigint, carrier string, sent_at timestamp",
    key="order_id",
    event_time="sent_at",
    out_of_order="1 hour",
    source=kinesis.stream("parcels", region="eu-central-1", endpoint=KINESIS),
)

paid = orders.join(payments, on="order_id", within="1 day", how="left").named("paid")

done = paid.where("paid_at is not null").join(parcels, on="order_id", within=("-1 day", "3 days")).named("done")
done.to(kafka.topic(KAFKA, "done", key="order_id"))

reminders = paid.where("paid_at is null").select("order_id", "customer", "amount")
reminders.to(stomp.destination(ACTIVEMQ, "reminders", key="order_id"))

if __name__ == "__main__":
    app.run()
