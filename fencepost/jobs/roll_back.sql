-- roll_back: what is open; the job failed, or its fence did.
rollback
