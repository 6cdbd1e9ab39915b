"""Private columns of an app's topics: checked in topics that it reads, marked in topics that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import TopicDiffers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.log import Topic
    from headrace.log.privacy.subjects import Origin


def check_declared(topic: Topic, columns: Sequence[str], declared: Mapping[str, str | None]) -> None:
    """Check that the declared private columns and their subjects are those of the topic.

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
            whose = f'"{topic.private[name]}"' if name in topic.private else "the subjects of another topic"
            raise TopicDiffers(
                f'the private values of "{name}" in the topic "{topic.name}" belong to {whose}, not to "{subject}"',
                hint=f'Say app.stream("{topic.name}", …, private=[{names}]): the topic knows the subjects.',
            )


def mark_sealed(topic: Topic, columns: Sequence[str], sealed: Collection[str], origins: Iterable[Origin]) -> None:
    """Mark the columns of a topic to which an app writes sealed values, so that its readers can open them.

    Raises:
        TopicDiffers: the topic has clear values in them, or seals columns itself, or the app writes clear values to
            sealed columns.

    """
    own, marked = topic.private, topic.sealed
    for name in columns if own else ():
        if name in own:
            raise TopicDiffers(
                f'the topic "{topic.name}" seals its column "{name}" itself, and an app cannot write to it',
                detail="Its rows would be in the app's files before they are sealed.",
                hint="Write to a topic of another name.",
            )
    fresh = set(sealed) - marked
    mixed = (marked & set(columns)) - set(sealed) or (fresh if fresh and any(topic.end_offsets().values()) else set())
    if mixed:
        raise TopicDiffers(
            f'the topic "{topic.name}" would have sealed values and clear ones in its column "{min(mixed)}"',
            detail="It has records from before, written the other way.",
            hint="Write to a topic of another name.",
        )
    if sealed:
        topic.mark_sealed(sealed, origins)
