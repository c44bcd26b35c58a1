"""What counts are expected to be, out of noisy counts alone: levels, seasons, scatter, zeros, and a pace.

Nothing here sees a true count or decides what is spent: ``eventveil.mechanisms.seasonal`` does, and has the
proof. Everything here is post-processing, and gives the same bits on every machine.

``harmonics`` a season at a timestamp, ``regression`` seasons that are learned, ``profile`` the one that
columns share, ``levels`` filters, ``longrun`` means; ``mixture`` what these say together, ``scatter`` how
counts vary around it, ``evidence`` which columns are more than noise, ``doubt`` what one may hold that is
not; ``forecast`` the whole, ``rounding`` whole numbers of it, ``pace`` when to look again.
"""
