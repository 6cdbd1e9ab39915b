"""Orders in foreign currencies, priced at the rate of their time, though rates arrive up to two minutes late.

Input of any size: `python examples/enrichment_input.py orders 1000`, and the same for `rates` and `customers`; pipe
each into `headrace topics produce`.
"""

import headrace as hr

app = hr.App("enrichment", storage=".headrace/enrichment")

orders = app.stream(
    "orders",
    "order_id bigint, customer string, currency string, amount double, at timestamp",
    key="order_id",
    event_time="at",
    out_of_order="10 seconds",
)
rates = app.table(
    "rates",
    "currency string, rate double, since timestamp",
    key="currency",
    event_time="since",
    out_of_order="10 seconds",
)
customers = app.table("customers", "customer string, country string", key="customer")

# as of arrival: at once, at the rate that is known by then
estimated = orders.join(rates.drop("since"), on="currency", how="left").named("estimated")
estimated.select("order_id", euros="round(amount * rate, 2)").to_topic("estimates", key="order_id")

# as of the order's time: final, once no rate that was valid then can arrive any more
priced = orders.join(rates, on="currency", as_of="at", grace="3 minutes", how="left").named("priced")
priced.late.to_topic("too_late_to_price")

# a customer may be known only after the order has arrived: by now most of them are
known = priced.join(customers, on="customer", how="left").named("known")
known.select("order_id", "customer", "country", "at", euros="round(amount * rate, 2)").to_topic(
    "invoices", key="order_id"
)

revenue = (
    known.group_by("country")
    .window(hr.tumbling("10 minutes", grace="0 seconds"), emit="final")
    .agg(orders="count(*)", euros="round(sum(amount * rate), 2)", without_rate="count(*) - count(rate)")
)
revenue.to_view("revenue")

if __name__ == "__main__":
    app.run()
