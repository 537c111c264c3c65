// Charts: each names where its numbers are; a tick asks for them again.
