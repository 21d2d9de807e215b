-- left_in_session: what a job has left in its session, before that is made as new; in the same message.
select fencepost.left_in_session(%(tenant_setting)s, %(role)s, %(as_new)s, %(thoroughly)s)
