-- session_state: what a session has as its role before any job had it (a login may be set up to take one on), and all else that a
-- job could leave there.
select current_setting('role'), fencepost.session_state(%(tenant_setting)s)
