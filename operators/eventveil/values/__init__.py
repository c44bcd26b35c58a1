"""Value streams: each event carries a value, and each event gives one sanitized reading, in order.

``tops`` and ``pak`` are the kinds; ``stream`` is what they share. An event's value goes through ``grid``
(bytes of JSON to an integer), ``threshold`` or ``pak`` (how far up values are kept), ``tree`` (noise),
``smoothers`` (fewer noisy sums, better guesses between them).
"""
