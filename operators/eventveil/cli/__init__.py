"""The commands of ``eventveil``; each calls the parts and prints what they answer."""
