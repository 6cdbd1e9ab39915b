"""Request and reply over topics: an app answers what things cost, and a server books orders, each once.

    python examples/quotes.py

The app could run on Spark, the server in many processes; here both run in this one.
"""

import sys
import tempfile
import threading
from pathlib import Path

import headrace as hr

folder = Path(tempfile.mkdtemp())

app = hr.App("shop", storage=folder)
prices = app.table("prices", "product string, price double", key="product")
quotes = app.rpc("quotes", "product string, amount int")
found = quotes.requests.join(prices, on="product", how="left")
quotes.reply(found.select("request_id", total="amount * price", error="if(price is null, 'no such product', null)"))


def say(what: str, found: object) -> None:
    """Print a line."""
    sys.stdout.write(f"{what} {found}\n")


booked: list[str] = []


def book(request: dict) -> dict:
    """Book an order: the same request twice is one order."""
    booked.append(request["product"])
    return {"number": len(booked)}


def main() -> None:
    """Ask both."""
    columns = {"request": "product string", "reply": "number int"}
    stop = threading.Event()
    with (
        app.start(carrier="in-process"),
        hr.Server(folder / "log", "orders", book, **columns) as server,
        hr.Client(folder / "log") as client,
    ):
        with hr.Log(folder / "log") as log:
            log.topic("prices").append([{"product": "rope", "price": 2.5}])
        thread = threading.Thread(target=server.run, args=[stop])
        thread.start()
        say("4 ropes:", client.ask("quotes", {"product": "rope", "amount": 4}, timeout="1 minute"))
        try:
            client.ask("quotes", {"product": "sail", "amount": 1}, timeout="1 minute")
        except hr.HeadraceError as error:
            say("a sail:", error.what)
        for _ in range(2):
            say("order 17:", client.ask("orders", {"product": "rope"}, request_id="17", timeout="1 minute"))
        say("booked:", booked)
        stop.set()
        thread.join()


if __name__ == "__main__":
    main()
