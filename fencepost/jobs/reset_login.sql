-- reset_login: behind a pooler, what acts as the login again, whoever had the session before.
reset session authorization
