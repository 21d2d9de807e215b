"""The demo: a hundred tenants, four bad jobs, a supervisor that does not mind, and a PostgreSQL that is gone after.

Light on purpose: workers import this package for the handlers in `fencepost.demo.jobs`.
"""
