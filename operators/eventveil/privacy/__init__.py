"""What every guarantee rests on: exact noise and the budget ledger."""
