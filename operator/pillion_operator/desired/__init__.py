"""What should be there for an IndicationService, as a pure function of it."""
