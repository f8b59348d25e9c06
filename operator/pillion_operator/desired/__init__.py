"""The objects of an IndicationService, as a pure function of it."""
