"""no answer returned

Return a kind and a rank for every wreck, for example ("missing", 2). A wreck that fits none of
your conditions falls through to the end.
"""

if -9 in wreck.exit_codes:
    found = "killed", wreck.exit_codes.index(-9)
