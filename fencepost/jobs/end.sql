-- end: commit, behind all that it depends on, in the same message.
commit
