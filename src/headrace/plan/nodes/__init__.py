"""The nodes of a plan, as frozen values: a node is one step. It holds the steps above it and has a schema.

A node does not know how it is computed. Two nodes are the same step only if they are the same object.
"""

from headrace.plan.nodes.aggregate import Aggregate
from headrace.plan.nodes.as_of_join import AsOfJoin
from headrace.plan.nodes.as_table import AsTable, Keep
from headrace.plan.nodes.dedupe import Dedupe
from headrace.plan.nodes.join import How, Join, JoinColumn
from headrace.plan.nodes.latest import Latest
from headrace.plan.nodes.lookup_join import LookupJoin
from headrace.plan.nodes.match import MATCH_ROW, MATCH_SYMBOL, After, Match
from headrace.plan.nodes.meaning import Meaning
from headrace.plan.nodes.node import ARRIVED, CORRECTED, ROW_TIME, Description, Node, OneInput, Partition
from headrace.plan.nodes.over import Over, Rows
from headrace.plan.nodes.search import TEXT, Search
from headrace.plan.nodes.side_join import SideJoin
from headrace.plan.nodes.sources import ReadSource, Source, TopicSource, Values
from headrace.plan.nodes.stateful import CHANGE_TYPE, Keeps, Keyed, Late, Stateful
from headrace.plan.nodes.stateless import Changes, Ending, Explode, MapBatches, Select, Stateless, Union, Where
from headrace.plan.nodes.stream_join import StreamJoin
from headrace.plan.nodes.suppress import Suppress
from headrace.plan.nodes.table_join import TableJoin
from headrace.plan.nodes.top import Ties, Top
from headrace.plan.nodes.windowed import Emit, Windowed

__all__ = [
    "ARRIVED",
    "CHANGE_TYPE",
    "CORRECTED",
    "MATCH_ROW",
    "MATCH_SYMBOL",
    "ROW_TIME",
    "TEXT",
    "After",
    "Aggregate",
    "AsOfJoin",
    "AsTable",
    "Changes",
    "Dedupe",
    "Description",
    "Emit",
    "Ending",
    "Explode",
    "How",
    "Join",
    "JoinColumn",
    "Keep",
    "Keeps",
    "Keyed",
    "Late",
    "Latest",
    "LookupJoin",
    "MapBatches",
    "Match",
    "Meaning",
    "Node",
    "OneInput",
    "Over",
    "Partition",
    "ReadSource",
    "Rows",
    "Search",
    "Select",
    "SideJoin",
    "Source",
    "Stateful",
    "Stateless",
    "StreamJoin",
    "Suppress",
    "TableJoin",
    "Ties",
    "Top",
    "TopicSource",
    "Union",
    "Values",
    "Where",
    "Windowed",
]
