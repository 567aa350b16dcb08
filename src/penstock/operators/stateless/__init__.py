"""Operations that keep nothing between records: columns, JSON, lookups, users' functions. Both forms of each."""
