"""What privacy rests on: noise, the budget ledger, the guarantee in words, the audit."""
