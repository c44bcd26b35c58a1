"""The audit of a stream: whether its ledger and its sink show that I1, I2 and I7 were kept.

Pure, and apart from what it audits: it shares no code with ``eventveil.privacy.ledger``, which refused every
spend above epsilon, nor with ``eventveil.formats.release``, which wrote the records. What a timestamp can
cost it asks the kind of mechanism (``Mechanism.can_spend``), which knows no state.

- **I1, one draw.** No two records of one timestamp differ, records of aborted transactions included, which
  read_uncommitted readers have seen. Identical ones are counted, not blamed.
- **I2, charge first.** Every record has a ledger entry with its digest. An entry becomes public in the same
  transaction as its record; that both were decided and charged in a transaction before that one is not to be
  seen from outside.
- **Changes.** A migration says in the ledger which terms hold from which timestamp on. Windows are summed up
  anew from there; those across it are summed up apart, in terms of epsilon, and must stay within the larger
  one whenever something is spent in them (``eventveil.lifecycle.migration``). Only records of the sink that
  was named last are matched. A stream that was reset has generations, each audited by itself
  (``generations``).
- **I7, auditable.** Every entry has its record. Entries follow each other without gaps from the first one
  on, under the terms of the topology and one instance. Every window's sum, recomputed from the spends of the
  entries, is what the entry says and at most epsilon. What a release says of itself is what its entry says,
  and a release that was not charged repeats the one before it, wherever in the sink the two records stand.
  The first copies of releases follow each other in the sink, under the stream's name as key, with the times
  that the topology gives to their timestamps. Each charge is one that its kind can have made.

Feed all of the ledger, in the order of its log, then the sink, then ask for the report. Memory: the spends of
one window and 82 bytes per release; counts are never kept and never part of a finding.
"""
