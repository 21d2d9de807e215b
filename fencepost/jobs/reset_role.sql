-- reset_role: behind a pooler, have the role that a new session of this login has.
reset role
