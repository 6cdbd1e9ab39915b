"""Redelivery changes the order: one worker dies with a task, and the task after it is done first."""

from __future__ import annotations

import sys
import tempfile

from headrace.log import Log


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Let a worker give up a task, without and with an order by key."""
    with tempfile.TemporaryDirectory() as folder, Log(folder) as log:
        topic = log.create_topic("orders", "customer string, what string", key="customer")
        topic.append([{"customer": "ann", "what": "open the account"}, {"customer": "ann", "what": "pay 10"}])
        for key_order in (False, True):
            say("in order:" if key_order else "as it comes:")
            with log.queue("in-order" if key_order else "as-it-comes", "orders", key_order=key_order) as worker:
                first = worker.take()
                following = worker.take()  # with an order by key it waits for the first
                worker.release(first)  # as if the worker had died
                for task in following or worker.take():
                    say(f"  {task.value['what']} (delivery {task.deliveries})")
                    worker.ack(task)
                while tasks := worker.take():
                    say(f"  {tasks[0].value['what']} (delivery {tasks[0].deliveries})")
                    worker.ack(tasks)


if __name__ == "__main__":
    main()
