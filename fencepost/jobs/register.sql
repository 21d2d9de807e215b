-- register: this supervisor's row: who it is, what each of its slots runs now, and whether it is to be told of what is
-- enqueued. Returns whether the row was not there: then nothing was told meanwhile.
insert into fencepost.supervisors as s
    (name, host, pid, version, kinds, queues, lease, heartbeat, listening, told, state, slots)
values (%(name)s, %(host)s, %(pid)s, %(version)s, %(kinds)s, %(queues)s, %(lease)s, %(heartbeat)s, %(listening)s,
        %(told)s, %(state)s, %(slots)s)
on conflict (name) do update set
    kinds = coalesce(excluded.kinds, s.kinds), listening = excluded.listening, told = excluded.told, state = excluded.state,
    slots = excluded.slots, seen_at = clock_timestamp()
returning xmax = 0 as is_new
