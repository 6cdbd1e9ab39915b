"""Where topics and views are: under a storage folder, or where an app has them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headrace.base.errors import PlanError, UnknownTopic, did_you_mean, nearest
from headrace.cli.parameters import FOLDER
from headrace.cli.programs import load_app
from headrace.connect.embedded import log_path
from headrace.connect.kafka.address import KafkaAddress, is_address
from headrace.engine.served import SQLITE, views_at
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.app import App
    from headrace.log import Topic
    from headrace.plan.nodes import Node
    from headrace.views.store import Views

STORAGE = Path(".headrace")
_BROKERS = "This command is for topics of a log; brokers have kafka-configs and kafka-topics."


class NoLog(PlanError):
    """There is no log at the path given."""

    condition = "NO_LOG"


class NoStorage(PlanError):
    """There is no storage at the path given."""

    condition = "NO_STORAGE"


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--log` (as `log_folder`) and `--app`: which log it works on."""
    path = click.option(
        "--log",
        "log_folder",
        type=FOLDER,
        help="The log's folder [.headrace/log].",
    )
    return path(_app_option(command))


def at_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--at`: it works on a Kafka cluster."""
    return click.option(
        "--at", metavar="ADDRESS", help="Work on the topics of a Kafka cluster: kafka://host:port?option=value."
    )(command)


def storage_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--storage` and `--app`: which app's views it shows."""
    path = click.option("--storage", type=FOLDER, help="The app's storage [.headrace].")
    return path(_app_option(command))


def _app_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--app", metavar="FILE", help="Use the topics and views of the app in this program.")(command)


def open_log(folder: Path | None, app: str | None, *, creates: bool = False, instead: str = _BROKERS) -> Log:
    """Return the log that the options name.

    `creates`: whether the command may create it. `instead`: what to do where the app's topics are in Kafka, if the
    command has no `--at`.

    Raises:
        NoLog: `--log` names a folder that is missing, or holds no log.

    """
    _refuse_both(folder, app, "--log")
    if app is not None:
        program_app = load_app(app)
        if is_address(program_app.topics):
            hint = _in_kafka(program_app, instead)
            raise PlanError(f"the topics of the app {program_app.name} are in Kafka", hint=hint)
        return Log(log_path(program_app.storage, program_app.topics))
    if folder is not None and not creates:
        _check_log(folder)
    return Log(folder if folder is not None else STORAGE / "log")


def _in_kafka(app: App, instead: str) -> str:
    """Return what there is for an app's topics in Kafka: this command with `--at` if it has that, or another one."""
    at = f'--at "{KafkaAddress.parse(app.topics or "")}"'
    has_at = any(each.name == "at" for each in click.get_current_context().command.params)
    return f"Leave --app out, and say {at}" if has_at else instead.format(at=at)


def _check_log(folder: Path) -> None:
    if (folder / "topics").is_dir():
        return
    inside = [folder / name for name in ("log", ".headrace/log") if (folder / name / "topics").is_dir()]
    others = [path.name for path in _folders(folder.absolute().parent) if (path / "topics").is_dir()]
    similar = nearest(folder.name, others)
    meant = inside[0] if inside else folder.parent / similar if similar else None
    raise NoLog(
        f"there is no log {folder}",
        detail="The folder holds no topics." if folder.is_dir() else "There is no such folder.",
        hint=f"Did you mean --log {meant}?"
        if meant is not None
        else "A log is created with its first topic: headrace topics create. By default it is .headrace/log.",
    )


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def find(log: Log, name: str) -> Topic:
    """Return a topic, or raise an error that suggests a similar name and how to create it."""
    try:
        return log.topic(name)
    except UnknownTopic as error:
        create = f'Create it: headrace topics create {name} --schema "id bigint, at timestamp" --log {log.path}'
        error.hint = f"{did_you_mean(name, log.topics())} {create}".strip()
        raise


class Served(NamedTuple):
    """The views of a storage, and those that the program declares, if one was given: before its first epoch too."""

    views: Views
    declared: dict[str, Node]
    storage: Path


def open_views(storage: Path | None, app: str | None) -> Served:
    """Return the views that the options name.

    Raises:
        NoStorage: there is no such storage.

    """
    _refuse_both(storage, app, "--storage")
    if app is not None:
        program_app = load_app(app)
        declared = {sink.view: sink.up for sink in program_app.plan().sinks if sink.view is not None}
        return Served(views_at(program_app.storage), declared, program_app.storage)
    path = storage if storage is not None else STORAGE
    check_storage(path)
    return Served(views_at(path), {}, path)


def check_storage(path: Path) -> None:
    """Refuse a folder that is no storage: its name was mistyped.

    Raises:
        NoStorage: there is no such storage.

    """
    if not _is_storage(path):
        similar = nearest(path.name, [each.name for each in _folders(path.absolute().parent) if _is_storage(each)])
        inside = path / STORAGE
        meant = inside if _is_storage(inside) else path.parent / similar if similar else None
        raise NoStorage(
            f"there is no storage {path}",
            detail="It is created when an app runs for the first time.",
            hint=f"Did you mean --storage {meant}?"
            if meant is not None
            else "Give another one with --storage PATH, or the program that names it.",
        )


def _is_storage(path: Path) -> bool:
    return any((path / name).exists() for name in ("app.json", SQLITE, "epochs", "log/topics"))


def cluster_at(at: str, **others: object) -> KafkaAddress:
    """Return the address of `--at`; `others` are the options of a command that a cluster does not have.

    Raises:
        PlanError: it is no address, or the packages are missing.

    """
    for option, value in others.items():
        if value not in (None, (), False):
            raise click.UsageError(f"--{option.replace('_', '-')} is for topics of a log, and --at for those of Kafka")
    address = KafkaAddress.parse(at)
    missing = next((name for name in ("confluent_kafka", "kafka", "numba", "cramjam") if find_spec(name) is None), None)
    if missing is not None:
        raise PlanError(
            f"--at needs the package {missing}, which is not installed", hint='pip install "headrace[kafka]"'
        )
    return address


def _refuse_both(path: object, app: object, option: str) -> None:
    if path is not None and app is not None:
        raise click.UsageError(f"{option} and --app name the same thing; give one of them")
