-- retry: by hand. The function is the same that any other language calls.
select r.status, r.refused from fencepost.retry(%(id)s::bigint, %(tenant)s::text) r
