-- unlisten: what listens in vain may be a pooler's session, and another client's next.
unlisten *
