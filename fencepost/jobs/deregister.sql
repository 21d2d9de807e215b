-- deregister: this supervisor is gone; and with it the rows of those that left without a word.
delete from fencepost.supervisors s
where s.name = %(name)s or s.seen_at < clock_timestamp() - 3 * (s.lease + s.heartbeat)
