-- reset_role: have the role that a new session of this login has.
reset role
