"""What a privacy officer signs: promise, budget, rights, audit and open points of a topology on one page."""
