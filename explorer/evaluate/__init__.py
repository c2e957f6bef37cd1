"""One design point through synthesis, verification, lowering and simulation."""
