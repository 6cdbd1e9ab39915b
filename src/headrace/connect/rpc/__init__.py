"""Request and reply over topics: `Client` sends requests and waits for their replies, `Server` answers."""

from headrace.connect.rpc.client import Client
from headrace.connect.rpc.server import Server

__all__ = ["Client", "Server"]
