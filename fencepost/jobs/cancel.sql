-- cancel: by hand. The function is the same that any other language calls.
select fencepost.cancel(%(id)s::bigint, %(tenant)s::text)
