"""Operations by key, with state: aggregations, windows, joins.

Users see one operation; `expand` gives the parts that run: a stateless one before the shuffle, in both forms, and
behind it a `StatefulOperator`, which follows event time, is stored at every epoch and always takes the record form.

============  =====================  ====================  ==================================================
users see     before the shuffle     behind it             with
============  =====================  ====================  ==================================================
aggregation   combine                reduce                aggregates, windows (new kinds go there), panes
join          tag, for each side     match, match_once, asof
process       timed (event time)     process               a user's class: states, timers, outputs
============  =====================  ====================  ==================================================
"""
