-- enqueue: a count for each tenant, and three bad jobs among them.
-- The bad ones are due a moment later, so that they land in the midst; and are urgent, so that their next attempts do not
-- wait until all others are done.
select fencepost.enqueue(
    j.kind, j.payload, tenant => j.tenant::text, priority => j.priority, after => j.after * interval '1 second'
)
from (
    select 'invoice.count' as kind, '{"seconds": 0.28}'::jsonb as payload, tenant, 0 as priority, 0.0 as after
    from generate_series(1, 100) as tenant
    union all
    values
        ('bad.hangs', '{}'::jsonb, 11, -1, 0.4),
        ('bad.exits', '{}'::jsonb, 13, -1, 1.2),
        ('bad.raises', '{}'::jsonb, 17, -1, 2.0)
    order by after, tenant
) j
