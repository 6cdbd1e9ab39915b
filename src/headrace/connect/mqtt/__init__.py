"""MQTT 5: topics come in by a session that the broker keeps, rows go out as messages of QoS 1 or 2.

It needs no extra: packets are written and read here, because clients acknowledge messages of QoS 2 before an app has
them (docs/design/0054-acknowledging-in-mqtt.md).
"""

from headrace.connect.mqtt.incoming import subscription
from headrace.connect.mqtt.sending import topic

__all__ = ["subscription", "topic"]
