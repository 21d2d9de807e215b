-- enqueue_late: the late writer, in a queue of its own, so that it is known which supervisor takes it first.
select fencepost.enqueue('bad.writes_late', '{"seconds": 2.0}', tenant => '7', queue => 'late') as id
