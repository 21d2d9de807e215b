-- reset_all: have the settings of a new session, the path in which names are looked up among them; behind a
-- pooler but for what `ours` says next.
reset all
