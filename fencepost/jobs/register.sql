-- register: this supervisor's row: who it is, and what each of its slots runs now.
insert into fencepost.supervisors as s
    (name, host, pid, version, kinds, queues, lease, heartbeat, listening, state, slots)
values (%(name)s, %(host)s, %(pid)s, %(version)s, %(kinds)s, %(queues)s, %(lease)s, %(heartbeat)s, %(listening)s,
        %(state)s, %(slots)s)
on conflict (name) do update set
    kinds = coalesce(excluded.kinds, s.kinds), listening = excluded.listening, state = excluded.state,
    slots = excluded.slots, seen_at = clock_timestamp()
