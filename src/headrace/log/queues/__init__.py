"""Work queues: records of a topic that are leased, acknowledged and redelivered one by one."""
