"""Purchases that the card's owner probably did not make: within a minute their phone was far from the shop.

Input of any size: `python examples/fraud_input.py purchases 1000`, and the same for `locations`; pipe each into
`headrace topics produce`.
"""

import headrace as hr

app = hr.App("fraud", storage=".headrace/fraud")

purchases = app.stream(
    "purchases",
    "purchase_id bigint, user string, amount double, lat double, lon double, at timestamp",
    key="purchase_id",
    event_time="at",
    out_of_order="20 seconds",
)
locations = app.stream(
    "locations",
    "user string, lat double, lon double, at timestamp",
    key="user",
    event_time="at",
    out_of_order="20 seconds",
)

# kilometres between two places on a sphere; the second one's columns have the suffix
KM = (
    "12742 * asin(sqrt(pow(sin(radians(lat_right - lat) / 2), 2)"
    " + cos(radians(lat)) * cos(radians(lat_right)) * pow(sin(radians(lon_right - lon) / 2), 2)))"
)

# a condition of the join: a location nearby is no match, so a purchase with only such locations is not suspicious
far = purchases.join(locations, on="user", within="1 minute", where=f"{KM} > 100").named("far")
suspicions = far.group_by("purchase_id", "user").agg(
    amount="max(amount)", km=f"round(max({KM}))", seen="count(*)", at="max(at)"
)
suspicions.to_view("suspicions")
far.late.to_topic("too_late_to_say")

# purchases without any location within a minute: known as soon as none can arrive any more
located = purchases.join(locations, on="user", within="1 minute", how="left").named("located")
located.where("at_right is null").select("purchase_id", "user", "amount", "at").to_topic("unseen")

if __name__ == "__main__":
    app.run()
