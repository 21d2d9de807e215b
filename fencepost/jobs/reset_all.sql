-- reset_all: behind a pooler, have the settings of a new session, the path in which names are looked up among them; but for what
-- `ours` says next.
reset all
