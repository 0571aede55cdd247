"""The parts of the command line; :mod:`excise_integrations.cli` is its face."""
