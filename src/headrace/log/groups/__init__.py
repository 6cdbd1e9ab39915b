"""Consumer groups: the partitions of topics, shared by the live members of any process of the machine."""
