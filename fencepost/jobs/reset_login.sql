-- reset_login: what acts as the login again, whoever had the session before.
reset session authorization
