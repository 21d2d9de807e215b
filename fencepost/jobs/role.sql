-- role: what a session has as its role before any job had it: a login may be set up to take one on.
select current_setting('role')
