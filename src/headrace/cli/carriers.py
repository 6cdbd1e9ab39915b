"""Where `headrace run` runs an app: `--local`, `--master` and `--conf`."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from headrace.engine.operation.running import IN_PROCESS, SPARK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.engine.operation.running import CarrierName


@dataclass(frozen=True, kw_only=True)
class ChosenCarrier:
    """What runs the epochs: this process, or Spark with its master and settings."""

    local: bool = False
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> CarrierName:
        """The carrier's name."""
        return IN_PROCESS if self.local else SPARK

    @property
    def where(self) -> str:
        """Where it runs, for people."""
        return "in this process" if self.local else "on Spark"

    def open_spark(self) -> Any:
        """Return a session as it was chosen, or None where nothing was said."""
        if self.master is None and not self.settings:
            return None
        from headrace.engine.spark.session import session

        return session(master=self.master, settings=self.settings)


def carrier_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which takes `carrier`, a `ChosenCarrier`."""

    @click.option("--local", is_flag=True, help="Run in this process, without Spark and Java; the storage is the same.")
    @click.option("--master", metavar="URL", help="Spark's master, like spark://host:7077; by default this machine.")
    @click.option("--conf", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; may be repeated.")
    @functools.wraps(command)
    def wrapped(*args: Any, local: bool, master: str | None, conf: tuple[str, ...], **others: Any) -> Any:
        return command(*args, carrier=_chosen(local=local, master=master, conf=conf), **others)

    return wrapped


def _chosen(*, local: bool, master: str | None, conf: tuple[str, ...]) -> ChosenCarrier:
    if local and (master or conf):
        raise click.UsageError("--local runs without Spark: leave out --master and --conf.")
    settings = {}
    for setting in conf:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{setting!r} is not like spark.executor.memory=4g", param_hint="--conf")
        settings[name] = value
    return ChosenCarrier(local=local, master=master, settings=settings)
