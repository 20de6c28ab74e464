"""The command line: a rendering of the client for people and scripts. Decides nothing itself."""
