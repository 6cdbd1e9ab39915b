"""Sources that queries are written over."""


def declare(app):
    """Declare two streams and two tables, and give them by name."""
    timed = {"event_time": "at", "out_of_order": "10 seconds"}
    return {
        "clicks": app.stream("clicks", "search_id string, url string, user string, at timestamp", **timed),
        "searches": app.stream("searches", "search_id string, query string, user string, at timestamp", **timed),
        "orders": app.table("orders", "id bigint, buyer bigint, price double, at timestamp", key="id"),
        "users": app.table("users", "id bigint, name string, city string", key="id"),
    }
