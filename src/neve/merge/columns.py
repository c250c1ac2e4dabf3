"""Columns that exist while a batch is merged, and in no table of anybody's."""

# Every name that Neve uses begins so.
OWN_PREFIX = "_neve_"
OPERATION = "_neve_operation"
REASON = "_neve_reason"
# What becomes of an event that decides over no key: one that cannot be taken, or a TRUNCATE.
OTHER = "_neve_other"
# What decides between two events of the same sequence, before their content does.
RANK = "_neve_rank"
# Another event of the same key and sequence says something else: 1, or 0.
CONTESTED = "_neve_contested"
# The event is merged already; it is here to be compared with new ones of the same sequence.
MERGED = "_neve_merged"
# Whether the event replaces a row of the same sequence, if it differs from it: 1, or 0. Known only
# once merged events were compared.
WINS_TIE = "_neve_wins_tie"
# The sequence of the mirror's row, and of the key's tombstone; NULL where there is none.
CURRENT = "_neve_current"
TOMBSTONE = "_neve_tombstone"
# Where the mirror's row is: its file, and its position there.
ROW_FILE = "_neve_row_file"
ROW_POSITION = "_neve_row_position"
# Which of its key's rows in the mirror it is; there is one, unless somebody else wrote another.
NUMBER = "_neve_row_number"
# Whether the index knows of several rows of the key, and so of none.
SEVERAL = "_neve_several"
# Whether the key has a row or a tombstone.
KNOWN_KEY = "_neve_known_key"
# How many parts of the index were in memory already; said once in a batch of rows.
CACHE_HITS = "_neve_cache_hits"
# Whether a part of the index is missing or damaged, so that what it said does not count: 1, or 0.
INDEX_BROKEN = "_neve_index_broken"
# Whether the store did not let the index be read: 1, or 0. It may do so a moment later.
INDEX_AWAY = "_neve_index_away"
DISPOSITION = "_neve_disposition"
# How many events of the batch a key has.
EVENTS = "_neve_events"
# Whether what it said came after newer events that did not say it.
OVERTAKEN = "_neve_overtaken"
# With an unchanged marker: the newest delete of the key in the batch, and for each column that may
# carry the marker a struct of its newest known value and that value's sequence.
RESET = "_neve_reset"
KNOWN = "_neve_known_"
# The value that the mirror has in such a column.
BASE = "_neve_base_"
FULL = "_neve_full"
# A column of the changelog that was dropped there; its field id and its name follow.
DROPPED = "_neve_dropped_"
FILE, POSITION = "_file", "_pos"

# What is summed up for each disposition, as `report.Tally` has it.
SUMMED = (EVENTS, OVERTAKEN, KNOWN_KEY, CACHE_HITS, CONTESTED, INDEX_BROKEN, INDEX_AWAY)
