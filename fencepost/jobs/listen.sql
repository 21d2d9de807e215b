-- listen: be told when a job is enqueued. The channel is the schema, so that two installations do not wake each other.
listen fencepost
