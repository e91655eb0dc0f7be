"""The production back end: verl's trainer on Ray, with our losses. docs/verl.md says how it is built and launched."""
