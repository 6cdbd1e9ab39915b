"""Private columns between an app and its topics: declared as they are, and marked where they are passed on to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import TopicDiffers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.log import Topic
    from headrace.log.privacy.subjects import Origin


def check_declared(topic: Topic, columns: Sequence[str], declared: Mapping[str, str | None]) -> None:
    """Refuse to read private columns as clear ones, clear ones as private, or those of one subject as of another.

    Raises:
        TopicDiffers: the topic's private columns are not those that the app declares.

    """
    private = [name for name in columns if name in topic.private or name in topic.sealed]
    names = ", ".join(f'"{name}"' for name in private)
    if set(private) != set(declared):
        raise TopicDiffers(
            f'the private columns of the topic "{topic.name}" are not those that the app declares',
            detail=f"The topic has: {names or 'none'}. Declared: {', '.join(sorted(declared)) or 'none'}.",
            hint=f'Say app.stream("{topic.name}", …, private=[{names}]).' if private else "Leave private= out.",
        )
    for name, subject in declared.items():
        if subject is not None and topic.private.get(name) != subject:
            whose = f'"{topic.private[name]}"' if name in topic.private else "what another topic says"
            raise TopicDiffers(
                f'the private values of "{name}" in the topic "{topic.name}" belong to {whose}, not to "{subject}"',
                hint=f'Say app.stream("{topic.name}", …, private=[{names}]): the topic knows whose they are.',
            )


def hold(topic: Topic, columns: Sequence[str], sealed: Collection[str], origins: Iterable[Origin]) -> None:
    """Mark the columns of a topic to which an app passes sealed values, so that whoever reads it gets the values.

    Raises:
        TopicDiffers: the topic has clear values there, or seals them itself, or the app writes clear ones to it.

    """
    own, known = topic.private, topic.sealed
    for name in columns if own else ():
        if name in own:
            raise TopicDiffers(
                f'the topic "{topic.name}" seals its column "{name}" itself, and an app cannot write to it',
                detail="Its rows would stand in the app's files before they are sealed.",
                hint="Write to a topic of another name.",
            )
    fresh = set(sealed) - known
    mixed = (known & set(columns)) - set(sealed) or (fresh if fresh and any(topic.end_offsets().values()) else set())
    if mixed:
        raise TopicDiffers(
            f'the topic "{topic.name}" would have sealed values and clear ones in its column "{min(mixed)}"',
            detail="Records are there from when the column was passed on otherwise.",
            hint="Write to a topic of another name.",
        )
    if sealed:
        topic.mark_sealed(sealed, origins)
