-- living: the supervisors that were seen lately, by their own heartbeat and the database's clock.
select
    s.name, s.host, s.pid, s.version, s.kinds, s.queues, s.lease, s.heartbeat, s.listening, s.state, s.slots::text as
    slots, s.started_at, s.seen_at, extract(epoch from clock_timestamp() - s.seen_at)::float8 as seen_ago
from fencepost.supervisors s
where s.seen_at > clock_timestamp() - (3 * s.heartbeat + interval '5 seconds')
order by s.started_at, s.name
